"""Killed parts restart by themselves, and functions keep their GPUs."""

from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent.factories import expected_gpus
from tests.node.functions import Deploy, grant
from tests.node.real_cluster import RealCluster, container_id, is_ready, running_id
from tests.node.release import Release
from tests.testbed.api import Json, wait_until

pytestmark = pytest.mark.e2e

HEALED_WITHIN_S = 300


def kill(release: Release, pod: Json, container: str) -> None:
    """Kill one container; return when a new run of it and its pod are ready."""
    before = container_id(pod, container)
    path = release.api.path(pod)
    release.cluster.kill(pod, container)

    def is_back() -> bool:
        now = release.api.get(path)
        return is_ready(now) and running_id(now, container) not in {"", before}

    wait_until(is_back, what=f"{container} is back", timeout_s=HEALED_WITHIN_S)


def daemons(folders: list[Path]) -> set[str]:
    """Return the process ids in the MPS daemons' pipe directories."""
    pids = set()
    for folder in folders:
        with suppress(FileNotFoundError):
            pids.add((folder / "nvidia-cuda-mps-control.pid").read_text(encoding="ascii"))
    return pids - {""}


def test_a_killed_agent_restarts_and_disturbs_no_function(
    cluster: RealCluster, release: Release, deploy: Deploy
) -> None:
    """The daemons have a separate container, and the function's container is the same."""
    function = deploy("served")
    before = function.running()
    [agent] = release.pods("agent")

    kill(release, agent, "agent")

    [now] = release.pods("agent")
    assert container_id(now, "mps") == container_id(agent, "mps")
    assert container_id(function.running(), "function") == container_id(before, "function")
    release.until_offers(800)
    assert release.gpus() == expected_gpus(cluster.gpus)


def test_a_deleted_agent_withdraws_its_gpus(release: Release) -> None:
    """No agent would monitor them; the node's next agent offers them again."""
    [agent] = release.pods("agent")
    release.api.delete(release.api.path(agent))
    release.until_offers(0)
    assert not any(gpu.healthy for gpu in release.gpus())
    release.until_offers(800)
    release.until_scheduling()


def test_killed_mps_daemons_restart(cluster: RealCluster, release: Release, deploy: Deploy) -> None:
    """Every GPU gets a new daemon in the folders that its clients have mounted."""
    [agent] = release.pods("agent")
    folders = [cluster.mps_root / uuid / "pipe" for uuid in cluster.gpus.uuids]
    before, inodes = daemons(folders), [folder.stat().st_ino for folder in folders]

    kill(release, agent, "mps")

    wait_until(
        lambda: len(daemons(folders) - before) == len(folders),
        what="new daemons run",
        timeout_s=HEALED_WITHIN_S,
    )
    release.until_offers(800)
    assert inodes == [folder.stat().st_ino for folder in folders]
    assert grant(deploy("afterwards").running())["ESG_GPU"] in cluster.gpus.uuids


@pytest.mark.parametrize("container", ["extender", "kube-scheduler"])
def test_a_killed_container_of_the_leader_restarts(
    release: Release, deploy: Deploy, container: str
) -> None:
    """The leader, old or new, places functions again."""
    release.until_scheduling()

    kill(release, release.leading_pod(), container)

    release.until_scheduling()
    deploy(f"after-{container}").running()
