"""The supervisor of MPS daemons: its rights, and what it shares with agent and webhook."""

from pathlib import Path

import pytest

from scheduler.settings import Settings
from tests.chart.rendering import EVERYTHING, Json, containers, environment, one, render

pytestmark = pytest.mark.usefixtures("helm_built")
BOTH = pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["defaults", "everything"])
MPS = "DaemonSet/mps"  # the supervisor of the MPS daemons


def test_the_mps_supervisor_has_exactly_the_listed_capabilities() -> None:
    """It is root but not privileged; the template has the reason of each capability."""
    supervisor = dict(containers(render()))[MPS]
    assert "privileged" not in supervisor["securityContext"]
    assert set(supervisor["securityContext"]["capabilities"]["add"]) == {
        "SYS_ADMIN", "SETUID", "SETGID", "KILL", "DAC_OVERRIDE", "SYS_PTRACE",
    }  # fmt: skip


@BOTH
def test_webhook_and_agent_use_the_same_mps_folder(values: list[Path]) -> None:
    """The webhook mounts the supervisor's folder of the host into function pods."""
    objects = render(*values)
    variables = {name: environment(container) for name, container in containers(objects)}
    folder = variables["Deployment/webhook"]["ESG_MPS_ROOT"]
    spec = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    [volume] = [v for v in spec["volumes"] if v["name"] == "mps"]
    assert volume["hostPath"] == {"path": folder, "type": "DirectoryOrCreate"}
    for name in ("DaemonSet/agent", "DaemonSet/mps"):
        assert variables[name]["ESG_AGENT_MPS_ROOT"] == folder


def test_an_upgrade_does_not_restart_daemons() -> None:
    """A restart ends the processes that use GPUs, so the operator deletes the pods."""
    assert one(render(), "DaemonSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "seconds"), [({}, 30), ({"mps_stop_s": 600}, 620)])
def test_the_grace_period_covers_the_end_of_mps_clients(settings: Json, seconds: int) -> None:
    """The kubelet kills no daemon while it waits for its clients."""
    spec = one(render(agent={"settings": settings}), "DaemonSet")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "uid"), [({}, Settings().mps_uid), ({"mps_uid": 0}, 0), ({"mps_uid": 7}, 7)]
)
def test_the_first_mps_server_is_of_the_functions_user(settings: Json, uid: int) -> None:
    """Otherwise the first client would wait for the end of that server."""
    by_name = dict(containers(render(settings=settings)))
    assert environment(by_name["DaemonSet/mps"])["ESG_AGENT_MPS_UID"] == str(uid)
    webhook = environment(by_name["Deployment/webhook"])
    assert webhook.get("ESG_MPS_UID", str(Settings().mps_uid)) == str(uid)


@pytest.mark.slow
def test_the_supervisor_waits_for_the_agents_permits() -> None:
    """Both know the same file; only the agent writes it."""
    by_name = dict(containers(render()))
    agent, mps = by_name["DaemonSet/agent"], by_name["DaemonSet/mps"]
    path = environment(agent)["ESG_AGENT_MPS_PERMITS"]
    assert environment(mps)["ESG_AGENT_MPS_PERMITS"] == path
    [writable] = [m for m in agent["volumeMounts"] if path.startswith(f"{m['mountPath']}/")]
    [read_only] = [m for m in mps["volumeMounts"] if path.startswith(f"{m['mountPath']}/")]
    assert (writable.get("readOnly", False), read_only["readOnly"]) == (False, True)
    assert writable["name"] == read_only["name"]
    without = dict(containers(render(mps={"enabled": False})))["DaemonSet/agent"]
    assert "ESG_AGENT_MPS_PERMITS" not in environment(without)


@pytest.mark.slow
@pytest.mark.parametrize("size_mib", [0, 4096])
def test_a_tmpfs_for_each_gpu_needs_a_capability_and_visible_mounts(size_mib: int) -> None:
    """It is mounted on the host; without it the container has neither."""
    objects = render(agent={"settings": {"mps_shm_mib": size_mib}} if size_mib else {})
    mps = dict(containers(objects))["DaemonSet/mps"]
    [mount] = [m for m in mps["volumeMounts"] if m["name"] == "mps"]
    assert mount.get("mountPropagation") == ("HostToContainer" if size_mib else None)
    added = mps["securityContext"]["capabilities"]["add"]
    assert ("SYS_CHROOT" in added) == bool(size_mib)
