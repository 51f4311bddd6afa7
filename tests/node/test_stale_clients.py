"""Clients of an ended MPS server: their processes end, and the kubelet starts them again."""

import json
from pathlib import Path

import pytest

from tests.agent.fakes import CLIENT
from tests.node.functions import PERCENT, Function, deployment, grant
from tests.node.real_cluster import RealCluster, statuses
from tests.node.release import Release
from tests.testbed.api import Json, wait_until

pytestmark = pytest.mark.e2e

EVENTS = "/api/v1/namespaces/default/events"
LIMITS = f"{PERCENT} 1800\n"
KILLED = 137
ENDED_WITHIN_S = 120


def test_clients_of_an_ended_server_restart_with_the_same_grant(
    cluster: RealCluster, release: Release
) -> None:
    """The new process is a client of the next server; an Event on the pod has the reason."""
    release.documents()
    program = ["python", "-I", "-S", "-c", CLIENT.read_text(), "$(CUDA_MPS_PIPE_DIRECTORY)"]
    function = Function(cluster, deployment("client", command=program))
    try:
        before = function.running()
        folder = cluster.mps_root / grant(before)["ESG_GPU"]
        fault = folder / "fault.json"
        wait_until(
            lambda: limits(cluster, before) == [LIMITS], what="the process is a client of MPS"
        )
        wait_until(lambda: clients(folder) == 1, what="the agent has seen the client")
        try:
            whole = fault.with_suffix(".new")  # the daemon never reads a part of it
            whole.write_text(json.dumps({"ended": 1}))
            whole.replace(fault)
            wait_until(
                lambda: limits(cluster, before) == [LIMITS, LIMITS],
                what="a new process is a client of MPS",
                timeout_s=ENDED_WITHIN_S,
            )
        finally:
            fault.unlink(missing_ok=True)
        # The kubelet reports a restart some time after the process has begun to run.
        wait_until(lambda: restarts(function.running()) == [1], what="the restart is reported")
        after = function.running()
        [status] = statuses(after)
        assert status["lastState"]["terminated"]["exitCode"] == KILLED
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert grant(after) == grant(before)
        name = after["metadata"]["name"]
        selector = f"involvedObject.name={name},reason=MPSClientsEnded"
        wait_until(
            lambda: cluster.api.items(EVENTS, fieldSelector=selector), what="the pod has an Event"
        )
    finally:
        function.delete()


def clients(folder: Path) -> int:
    """Return the number of a GPU's clients, as the agent reports it."""
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return int(state["clients"]["connected"])


def restarts(pod: Json) -> list[int]:
    """Return the number of restarts of each container."""
    return [status["restartCount"] for status in statuses(pod)]


def limits(cluster: RealCluster, pod: Json) -> list[str]:
    """Return the effective limits that each run of the client has printed."""
    lines = cluster.log(pod, "function").splitlines(keepends=True)
    return [line.split(" ", 3)[3] for line in lines if " stdout " in line]
