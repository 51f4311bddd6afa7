"""Fixtures of the chart: Helm, which the test bed builds with Go, and a control plane."""

import os
from collections.abc import Iterator

import pytest

from tests.chart.installation import Installation, installed
from tests.testbed import binaries
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]


@pytest.fixture(scope="session")
def helm_built() -> None:
    """Skip where Helm is not built yet, because that takes minutes; with ``CI=true``, build it."""
    if os.environ.get("CI") != "true" and not binaries.is_built("helm"):
        pytest.skip("Helm is not built: run `python -m tests.testbed.binaries helm` (needs Go)")


@pytest.fixture(scope="session")
def kube_score_built() -> None:
    """Skip where kube-score is not built yet; with ``CI=true``, build it."""
    if os.environ.get("CI") != "true" and not binaries.is_built("kube-score"):
        pytest.skip("kube-score is not built: run `make lint-chart` (needs Go)")


@pytest.fixture
def installation(cluster: ControlPlane) -> Iterator[Installation]:
    """Release of the chart with its defaults on the control plane."""
    with installed(cluster) as release:
        yield release
