"""The world of one run: nodes, documents, replicas and schedulers, and the incidents' effects."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from scheduler.agent.node_publisher import capacity
from scheduler.agent.pods.node_pods import PodRequest
from scheduler.model.node import Gpu
from tests.campaign import slice_pods
from tests.campaign.audit import GpuAudit, share_of
from tests.campaign.gangs import as_member
from tests.campaign.gateway_incidents import TEXTS as GATEWAY_INCIDENTS
from tests.campaign.gateways import Gateways
from tests.campaign.incidents import FUNCTIONS, REPLICAS, Incident
from tests.campaign.kube_scheduler import SimulatedKubeScheduler
from tests.campaign.kubelet import SimulatedKubelet
from tests.campaign.node_sums import percent_of
from tests.campaign.replica import Life, Replica
from tests.campaign.simulated_server import RequestFault, SimulatedServer
from tests.campaign.slice_runs import SliceRuns
from tests.campaign.webhook import SimulatedCreator
from workbench.cluster import api_requests
from workbench.cluster.api_requests import FUNCTION_PROFILES, PODS
from workbench.cluster.object_store import Key, ObjectChange, Raw, StatusError

GPU_MEMORY_MIB = 81_920
NAMESPACE = "default"
ELECTION_S = 15.0  # until another kube-scheduler leads after one that does not answer
STEP_DOWN_S = 2.0  # until a kube-scheduler has seen that another one leads
_GROUP = "esg-scheduler.io"
_MODEL = "NVIDIA A100-SXM4-80GB"


class World:
    """One simulated cluster.

    Attributes:
        server: API server.
        audit: the shares at the server.
        kubelet: kubelet of all nodes, with the shares of the containers.
        slice_runs: batches that run in slices.
        replicas: replicas of the extender, by name.
        schedulers: kube-schedulers beside them, by name.
        creator: client that creates pods, through the webhook.
        gateways: replicas of the gateway; None: the run has none.
    """

    def __init__(
        self, layout: Mapping[str, int], active: int, *, has_gateways: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._layout = layout
        self.active = active
        self.server = SimulatedServer()
        self.audit = GpuAudit(GPU_MEMORY_MIB)
        self._gpus = {name: _gpus(name, count) for name, count in layout.items()}
        self.kubelet = SimulatedKubelet(self.server, GPU_MEMORY_MIB)
        for name in layout:
            self._create_node(name)
        for function in FUNCTIONS:
            self.server.store.create(FUNCTION_PROFILES, _profile(function))
        self.creator = SimulatedCreator(self.server)
        self.gateways: Gateways | None = None
        if has_gateways:
            self.server.admit = self.creator.admit
            self.gateways = Gateways(self.server, self.kubelet)
        self.slice_runs = SliceRuns(self.kubelet.running)
        self.replicas = {name: Replica(self.server, name) for name in REPLICAS}
        self.schedulers = {
            name: SimulatedKubeScheduler(self.server, replica)
            for name, replica in self.replicas.items()
        }
        self.server.store.on_change = self._observe
        self._leader = REPLICAS[0]
        for name in REPLICAS[:active]:
            self.schedulers[name].lead()

    def _observe(self, path: str, change: ObjectChange) -> None:
        self.audit.observe(path, change)
        self.kubelet.observe(path, change)
        self.slice_runs.observe(path, change)
        for scheduler in self.schedulers.values():
            scheduler.observe(path, change)
        if self.gateways is not None:
            self.gateways.observe(path, change)
        if path == PODS:
            for pod in (change.before, change.after):
                if pod is not None and pod["spec"].get("nodeName"):
                    self._loop.call_soon(self._write_capacity, pod["spec"]["nodeName"])

    # -- the end -------------------------------------------------------------------------------

    def heal(self) -> None:
        """End all faults: every node and every replica is there, and someone leads."""
        self.server.heal()
        for replica in self.replicas.values():
            replica.machine.resume(is_suspended=False)
        for name in self._layout:
            self._restore(name)
        for replica in self.replicas.values():
            replica.start()
        if self.gateways is not None:
            self.gateways.heal()
        if self.active == 1:
            for name, scheduler in self.schedulers.items():
                if name != self._leader:
                    scheduler.stop()
        for name in [self._leader] if self.active == 1 else REPLICAS:
            self.schedulers[name].lead()

    @property
    def lives(self) -> list[Life]:
        return [life for replica in self.replicas.values() for life in replica.lives]

    @property
    def gpus(self) -> dict[str, list[Raw]]:
        """Inventories of the nodes."""
        return self._gpus

    # -- incidents -----------------------------------------------------------------------------

    def apply(self, incident: Incident) -> None:
        """Let an incident happen; what does not suit the state changes nothing."""
        act: Callable[..., None]
        if incident.kind in GATEWAY_INCIDENTS:
            act = getattr(self.gateways, incident.kind)
        else:
            act = getattr(self, f"_{incident.kind}")
        with suppress(StatusError):
            details = incident.details
            nodes = {details[key] for key in ("node", "new_node") if key in details}
            if nodes <= self._gpus.keys():
                act(**details)

    def _key(self, pod: str) -> Key:
        return NAMESPACE, pod

    def _create(self, pod: str, function: str, priority: int, grace_s: int = 30) -> None:
        self.creator.create(_pod(pod, function, priority, grace_s))

    def _gang(self, gang: str, function: str, size: int, minimum: int, *, has_racks: bool) -> None:
        for number in range(size):
            pod = _pod(f"{gang}-{number}", function, 0, 30)
            self.creator.create(as_member(pod, gang, minimum, has_racks=has_racks))

    def _revert(self, times: int) -> None:
        for scheduler in self.schedulers.values():
            scheduler.revert(times)

    def _hold(self, pod: str, percent: int, priority: int, group: str = "") -> None:
        self.creator.create(slice_pods.holder(pod, percent, priority, group))

    def _join(self, pod: str, function: str, priority: int, group: str = "") -> None:
        self.creator.create(slice_pods.member(pod, function, priority, group))

    def _relabel(self, pod: str) -> None:
        change = {"metadata": {"labels": {"changed": f"at-{self._loop.time():.0f}"}}}
        self.server.store.patch(PODS, self._key(pod), change)

    def _finish(self, pod: str) -> None:
        self.kubelet.finish(self._key(pod))

    def _delete(self, pod: str) -> None:
        self.server.delete_pod(pod)

    def _force_delete(self, pod: str) -> None:
        self.server.delete_pod(pod, grace_s=0)

    def _recreate(self, pod: str, function: str, priority: int) -> None:
        self._force_delete(pod)
        self._create(pod, function, priority)

    def _request(self, replica: str, **fault: Any) -> None:
        self.server.faults.append(RequestFault(replica, **fault))

    def _cut_watch(self, replica: str, resource: str) -> None:
        for feed in list(self.server.feeds_of(replica, resource)):
            feed.cut()

    def _silence_watch(self, replica: str, resource: str) -> None:
        for feed in list(self.server.feeds_of(replica, resource)):
            feed.fall_silent()

    def _slow_watch(self, replica: str, resource: str, seconds: float) -> None:
        for feed in self.server.feeds_of(replica, resource):
            feed.slow_down(seconds)

    def _expire_watch(self, replica: str, resource: str) -> None:
        for feed in list(self.server.feeds_of(replica, resource)):
            feed.expire()

    def _compact(self) -> None:
        self.server.requests.compact()

    def _unreachable(self, replica: str, seconds: float) -> None:
        self.server.unreachable_until_s[replica] = self._loop.time() + seconds
        for feed in list(self.server.feeds.get(replica, ())):
            feed.fall_silent()

    def _clock(self, replica: str, seconds: float) -> None:
        if (life := self.replicas[replica].life) is not None:
            life.skew_s += seconds

    # -- nodes ---------------------------------------------------------------------------------

    def _create_node(self, name: str) -> None:
        self.server.store.create(api_requests.NODES, _node(name, self._gpus[name]))

    def _publish(self, name: str, inventory: str | None = None) -> None:
        """Write the inventory of a node, as its agent does."""
        text = json.dumps(self._gpus[name]) if inventory is None else inventory
        change = {"metadata": {"annotations": {f"{_GROUP}/gpus": text}}}
        with suppress(StatusError):
            self.server.store.patch(api_requests.NODES, ("", name), change)
        self._write_capacity(name)

    def _write_capacity(self, name: str) -> None:
        """Write the capacity of a node, as its agent does, if it has changed.

        Pods whose GPU is unhealthy or gone add to it what they request.
        """
        node = self.server.store.collection(api_requests.NODES).objects.get(("", name))
        if node is None:
            return
        requests = [
            PodRequest(share.gpu, percent_of(pod))
            for pod in self.server.store.list(PODS)
            if (share := share_of(pod)) is not None and share.node == name
        ]
        percent = capacity(map(Gpu.model_validate, self._gpus[name]), requests)
        amount = {f"{_GROUP}/gpu-percent": str(percent)}
        if node["status"]["allocatable"] != node["status"]["allocatable"] | amount:
            change = {"status": {"capacity": amount, "allocatable": amount}}
            self.server.store.patch(api_requests.NODES, ("", name), change)

    def _restore(self, name: str) -> None:
        """Let a node be there, with its own healthy GPUs."""
        gpus = self._gpus[name]
        if len(gpus) != self._layout[name] or not all(gpu["healthy"] for gpu in gpus):
            self._gpus[name] = _gpus(name, self._layout[name])
        with suppress(StatusError):
            self._create_node(name)
        self._publish(name)

    def _node_gone(self, node: str, seconds: float, gpus: str) -> None:
        self.server.store.delete(api_requests.NODES, ("", node))
        if gpus == "other":
            self._gpus[node] = _gpus(node, self._layout[node], f"{self._loop.time():.0f}")
        self._loop.call_later(seconds, self._restore, node)

    def _gpu_unhealthy(self, node: str, gpu: int, seconds: float, **_: Any) -> None:
        if gpu < len(self._gpus[node]):
            self._gpus[node][gpu] = self._gpus[node][gpu] | {"healthy": False}
            self._publish(node)
            self._loop.call_later(seconds, self._restore, node)

    def _gpu_moves(self, node: str, new_node: str, gpu: int, seconds: float) -> None:
        if gpu < len(self._gpus[node]):
            moved = self._gpus[node].pop(gpu)
            self._publish(node)
            self._gpus[new_node].append(moved | {"index": len(self._gpus[new_node])})
            self._publish(new_node)
            for name in (node, new_node):
                self._loop.call_later(seconds, self._restore, name)

    def _inventory(self, node: str, seconds: float, **_: Any) -> None:
        self._publish(node, "not JSON")
        self._loop.call_later(seconds, self._restore, node)

    # -- replicas ------------------------------------------------------------------------------

    def _restart(self, replica: str, seconds: float) -> None:
        self.replicas[replica].kill()
        self._loop.call_later(seconds, self.replicas[replica].start)

    def _crash(self, replica: str, seconds: float) -> None:
        """Kill the leader with its extender; of two that are active, the named one."""
        crashed = self._leader if self.active == 1 else replica
        self.schedulers[crashed].stop()
        self.replicas[crashed].kill()
        self._loop.call_later(seconds, self.replicas[crashed].start)
        if self.active == 1:
            self._loop.call_later(seconds, self._lead, self._follower())
        else:
            self._loop.call_later(seconds, self.schedulers[crashed].lead)

    def _handover(self, replica: str, seconds: float) -> None:
        leader = self._leader if self.active == 1 else replica
        self.schedulers[leader].stop()
        successor = self._follower() if self.active == 1 else leader
        self._loop.call_later(seconds, self._lead, successor)

    def _overlap(self, replica: str, seconds: float) -> None:
        if self.active == 1:
            old = self._leader
            self._lead(self._follower())
            self._loop.call_later(seconds, self._step_down, old)

    def _freeze(self, replica: str, seconds: float) -> None:
        self._pause(replica, seconds, is_suspended=False)

    def _suspend(self, replica: str, seconds: float) -> None:
        self._pause(replica, seconds, is_suspended=True)

    def _lose_notes(self, replica: str, seconds: float) -> None:
        self.schedulers[replica].lose_notes(seconds)

    def _pause(self, replica: str, seconds: float, *, is_suspended: bool) -> None:
        """Let the machine of a replica stand still; another one may lead meanwhile."""
        machine = self.replicas[replica].machine
        if machine.is_paused:
            return
        machine.pause()
        self._loop.call_later(seconds, partial(machine.resume, is_suspended=is_suspended))
        if self.active == 1 and replica == self._leader and seconds > ELECTION_S:
            self._loop.call_later(ELECTION_S, self._succeed, replica)
            self._loop.call_later(seconds + STEP_DOWN_S, self._step_down, replica)

    def _succeed(self, leader: str) -> None:
        if leader == self._leader:
            self._lead(self._follower())

    def _step_down(self, name: str) -> None:
        if name != self._leader:
            self.schedulers[name].stop()

    def _lead(self, name: str) -> None:
        self._leader = name
        self.schedulers[name].lead()

    def _follower(self) -> str:
        return next(name for name in REPLICAS if name != self._leader)


def _gpus(node: str, count: int, suffix: str = "") -> list[Raw]:
    return [
        {
            "index": index,
            "uuid": f"GPU-{node}-{index}{suffix}",
            "model": _MODEL,
            "memory_mib": GPU_MEMORY_MIB,
            "multiprocessors": 108,
            "healthy": True,
        }
        for index in range(count)
    ]


def _node(name: str, gpus: list[Raw]) -> Raw:
    resources = {"cpu": "64", f"{_GROUP}/gpu-percent": str(100 * len(gpus))}
    return {
        "metadata": {"name": name, "annotations": {f"{_GROUP}/gpus": json.dumps(gpus)}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _profile(function: str) -> Raw:
    percent, memory_mib = FUNCTIONS[function]
    configuration = {
        "batch": 1,
        "cpu": 1,
        "gpuPercent": percent,
        "latencyMs": 100,
        "memoryMib": memory_mib,
    }
    spec = {"gpus": [{"model": _MODEL, "configurations": [configuration]}]}
    return {"metadata": {"name": function}, "spec": spec}


def _pod(name: str, function: str, priority: int, grace_s: int) -> Raw:
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {f"{_GROUP}/function": function},
        },
        "spec": {
            "priority": priority,
            "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": "function", "resources": {}}],
        },
        "status": {"phase": "Pending"},
    }
