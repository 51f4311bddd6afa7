"""Node agents of nodes that an autoscaler adds: `esg agent` for each, with simulated GPUs.

A machine would bring the agent's DaemonSet, and its network plugin addresses for pods.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.agent.fakes import FakeGpus, a100
from tests.testbed import REPOSITORY
from tests.testbed.api import Json
from tests.testbed.control_plane import ControlPlane
from tests.testbed.extender import ESG
from tests.testbed.nodes import pod_addresses
from tests.testbed.processes import Process
from workbench.cluster.process import free_port

USER = "esg-agent"
RBAC = REPOSITORY / "deploy" / "agent-rbac.yaml"
PATH = "/api/v1/nodes"
POLL_S = 0.5


@contextmanager
def following_nodes(
    plane: ControlPlane, folder: Path, libraries: Path, *, selector: str, gpus: int
) -> Iterator[None]:
    """Run an agent on each ready node with these labels, from its first report on.

    Args:
        plane: control plane; `RBAC` is applied to it.
        folder: exclusive folder.
        libraries: folder of the fake NVML, see `tests.agent.fakes.compiled`.
        selector: label selector of the nodes.
        gpus: GPUs of each node.
    """
    agents: dict[str, Process] = {}
    stop = threading.Event()
    api = plane.api_as(plane.admin)

    def follow() -> None:
        while not stop.wait(POLL_S):
            nodes = {n["metadata"]["name"]: n for n in api.items(PATH, labelSelector=selector)}
            for name in agents.keys() - nodes.keys():
                agents.pop(name).stop()
            for name in nodes.keys() - agents.keys():
                api.patch(f"{PATH}/{name}", {"spec": {"podCIDR": pod_addresses()}})
                agents[name] = _agent(plane, folder / name, libraries, name, gpus)
                agents[name].start()

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for agent in agents.values():
            agent.stop()
        api.close()


def _agent(plane: ControlPlane, folder: Path, libraries: Path, node: str, count: int) -> Process:
    folder.mkdir()
    gpus = FakeGpus(folder, libraries, count)
    for index in range(count):
        gpus.replace(index, a100(index, node))
    environment = {
        **gpus.environment,
        "NODE_NAME": node,
        "ESG_AGENT_HOST": "127.0.0.1",
        "ESG_AGENT_PORT": str(free_port()),
        "ESG_AGENT_REQUIRE_MPS": "false",
        "ESG_AGENT_AUTOSCALED": "true",
        "no_proxy": "127.0.0.1",
    }
    command = [ESG, "agent", f"--kubeconfig={plane.kubeconfig_for(USER)}"]
    return plane.process(f"agent-{node}", command, environment=environment)


def taint_keys(node: Json) -> set[str]:
    """Return the keys of a node's taints."""
    return {taint["key"] for taint in node["spec"].get("taints", ())}
