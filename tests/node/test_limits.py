"""Check of limits before a function starts: the node has no GPU, so no limit is in force."""

import pytest

from tests.node.functions import PERCENT, START_TIMEOUT_S, Function, deployment
from tests.node.real_cluster import RealCluster, statuses
from tests.node.release import VALUES, Release
from tests.testbed.api import wait_until

pytestmark = pytest.mark.e2e

USER = 1000


def test_a_pod_whose_limits_are_not_in_force_does_not_start(
    cluster: RealCluster, fresh_release: Release
) -> None:
    """Its status names the limits in force (variables, daemon) and those that are not (no CUDA)."""
    webhook = {**VALUES["webhook"], "checkLimits": True}
    fresh_release.install("install", webhook=webhook, settings={"mps_uid": USER})
    fresh_release.until_ready()
    fresh_release.documents()
    function = Function(cluster, deployment("checked"))
    try:
        wait_until(lambda: verdict(function), what="limits are checked", timeout_s=START_TIMEOUT_S)
        message = verdict(function)
        [pod] = function.pods()
        [_, main] = statuses(pod)
    finally:
        function.delete()
    assert f"ok: CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is {PERCENT}\n" in message
    assert "ok: the MPS daemon answers at " in message
    missing = "the CUDA driver (libcuda.so.1) is not installed here"
    assert f"not enforced: effective limits: {missing}" in message
    assert "waiting" in main["state"]


def verdict(function: Function) -> str:
    """Return the message of the failed check; empty before its end."""
    for pod in function.pods():
        check, *_ = statuses(pod) or [{}]
        for state in (check.get("state", {}), check.get("lastState", {})):
            terminated = state.get("terminated")
            if terminated and terminated["exitCode"] == 1:
                return str(terminated["message"])
    return ""
