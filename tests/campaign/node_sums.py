"""kube-scheduler's own arithmetic: sums of GPU percent by node, for filter and preemption."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.campaign.audit import share_of
from tests.campaign.gateway_documents import memory_mib
from tests.campaign.incidents import FUNCTIONS
from workbench.cluster.api_requests import NODES, PODS
from workbench.cluster.object_store import ObjectStore, Raw

_FUNCTION = "esg-scheduler.io/function"
_POOL = "esg-scheduler.io/pool"
_CONFIGURATION = "esg-scheduler.io/configuration"
_RESOURCE = "esg-scheduler.io/gpu-percent"


class NodeSums:
    """Requested percent of each node, as kube-scheduler counts it for one pod.

    Args:
        store: the cluster.
        pod: the pod to place.
        binding: nodes of the pods whose Binding is under way, by UID.
    """

    def __init__(self, store: ObjectStore, pod: Raw, binding: Mapping[str, str]) -> None:
        self._pod = pod
        self._pods = store.list(PODS)
        self._capacity = {
            node["metadata"]["name"]: int(node["status"]["allocatable"][_RESOURCE])
            for node in store.list(NODES)
        }
        self._binding = binding

    @property
    def names(self) -> list[str]:
        return list(self._capacity)

    def fits(self, node: str) -> bool:
        """Tell if the pod fits beside all pods of the node and what is nominated against it."""
        pods = [*self._on_node(node), *self.nominated(node, lower=False)]
        return self._sum(pods) + percent_of(self._pod) <= self._capacity[node]

    def victims(self, node: str) -> list[str]:
        """Return the UIDs of the pods to evict: as few as needed, the least important first.

        Empty where no eviction helps, and where none is needed by these sums.
        """
        running = list(self._on_node(node))
        lower = [pod for pod in running if _priority(pod) < _priority(self._pod)]
        remaining = [pod for pod in running if _priority(pod) >= _priority(self._pod)]
        remaining += self.nominated(node, lower=False)
        room = self._capacity[node] - percent_of(self._pod) - self._sum(remaining)
        if room < 0:
            return []
        victims = []
        for pod in sorted(lower, key=lambda p: (-_priority(p), p["metadata"]["name"])):
            if percent_of(pod) <= room:
                room -= percent_of(pod)
            else:
                victims.append(pod["metadata"]["uid"])
        return victims

    def nominated(self, node: str, *, lower: bool) -> Iterator[Raw]:
        """Yield other pending pods that are nominated: of lower priority, or of no lower one.

        A pod whose Binding is under way is on its node, and nominated no more.
        """
        for pod in self._pods:
            if pod["metadata"]["uid"] not in self._binding and (
                (pod.get("status") or {}).get("nominatedNodeName") == node
                and not pod["spec"].get("nodeName")
                and pod["metadata"]["uid"] != self._pod["metadata"]["uid"]
                and (_priority(pod) < _priority(self._pod)) is lower
            ):
                yield pod

    def _on_node(self, node: str) -> Iterator[Raw]:
        for pod in self._pods:
            bound_to = pod["spec"].get("nodeName") if share_of(pod) is not None else None
            if node in (bound_to, self._binding.get(pod["metadata"]["uid"])):
                yield pod

    def _sum(self, pods: list[Raw]) -> int:
        return sum(percent_of(pod) for pod in pods)


def percent_of(pod: Raw) -> int:
    """Return the percent that a pod requests."""
    return demand_of(pod)[0]


def demand_of(pod: Raw) -> tuple[int, int]:
    """Return the percent and MiB that a pod requests."""
    metadata = pod["metadata"]
    role = metadata["labels"].get(_POOL)
    if role == "holder":
        return int(pod["spec"]["containers"][0]["resources"]["requests"][_RESOURCE]), 0
    if role == "member":
        return 0, FUNCTIONS[metadata["labels"][_FUNCTION]][1]
    if (text := (metadata.get("annotations") or {}).get(_CONFIGURATION)) is not None:
        percent = json.loads(text)["gpuPercent"]
        return percent, memory_mib(percent)
    return FUNCTIONS[metadata["labels"][_FUNCTION]]


def is_waiting_for_victims(pod: Raw, store: ObjectStore) -> bool:
    """Tell if less important pods still terminate on the node that is nominated for the pod."""
    node = (pod.get("status") or {}).get("nominatedNodeName")
    return node is not None and any(
        victim["spec"].get("nodeName") == node
        and victim["metadata"].get("deletionTimestamp")
        and _priority(victim) < _priority(pod)
        for victim in store.list(PODS)
    )


def _priority(pod: Mapping[str, Any]) -> int:
    priority: int = pod["spec"].get("priority") or 0
    return priority
