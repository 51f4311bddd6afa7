"""Limits looked at before a function starts: the node has no GPU, and so none is in force."""

import pytest

from tests.node.functions import PERCENT, START_TIMEOUT_S, Function, deployment
from tests.node.real_cluster import RealCluster, statuses
from tests.node.release import Release
from tests.testbed.api import wait_until

pytestmark = pytest.mark.e2e

USER = 1000


def test_a_pod_whose_limits_are_not_in_force_does_not_start(
    cluster: RealCluster, fresh_release: Release
) -> None:
    """Its status says what is, the variables and the daemon, and what is not: there is no CUDA."""
    fresh_release.install("install", webhook={"checkLimits": True}, settings={"mps_uid": USER})
    fresh_release.until_ready()
    fresh_release.documents()
    function = Function(cluster, deployment("checked"))
    try:
        wait_until(
            lambda: verdict(function), what="limits are looked at", timeout_s=START_TIMEOUT_S
        )
        told = verdict(function)
        [pod] = function.pods()
        [_, main] = statuses(pod)
    finally:
        function.delete()
    assert f"ok: CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is {PERCENT}\n" in told
    assert "ok: the MPS daemon answers at " in told
    assert "not in force: limits at work: the CUDA driver (libcuda.so.1) is not here" in told
    assert "waiting" in main["state"]


def verdict(function: Function) -> str:
    """What the check has said when it had ended with an error; empty before."""
    for pod in function.pods():
        check, *_ = statuses(pod) or [{}]
        for state in (check.get("state", {}), check.get("lastState", {})):
            ended = state.get("terminated")
            if ended and ended["exitCode"] == 1:
                return str(ended["message"])
    return ""
