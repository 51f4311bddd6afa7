"""Namespace of the owner's Lease: processes in a cluster share one without a setting."""

import pytest

from scheduler.cluster import credentials
from scheduler.cluster.credentials import lease_namespace


@pytest.fixture
def service_account(tmp_path, monkeypatch):
    """The folder that the kubelet mounts into a pod; empty, as outside a pod."""
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    return tmp_path


def test_a_pod_uses_its_own_namespace(service_account):
    """Two processes of one Deployment exclude one another although nobody configured it."""
    (service_account / "namespace").write_text("gpu-system")
    assert lease_namespace(None) == "gpu-system"


def test_a_process_outside_a_pod_has_none(service_account):
    """It works on a cluster in memory, or at a desk."""
    assert not list(service_account.iterdir())
    assert lease_namespace(None) == ""


@pytest.mark.parametrize("configured", ["", "other"])
def test_the_setting_decides(service_account, configured):
    """Empty switches the Lease off."""
    (service_account / "namespace").write_text("gpu-system")
    assert lease_namespace(configured) == configured
