"""Workflow instances: which stage ran where, and whether the whole kept its SLO.

An instance is what shares namespace, workflow and the label ``request``. It is *finished* when a
pod of every stage has succeeded; *dropped* when none of its pods lives and nothing has happened for
a while (an engine that retries a failed stage has that long).

An instance whose first pod was not seen to be created, but found by a list, may have had earlier
stages and an earlier arrival that nobody can tell any more. So it is never dropped, and a hit or a
miss only if it ends here and an annotation says when it arrived or is due. What had ended before it
was found is not counted: an earlier process did that. Nor is one dropped that lacks a stage before
one that ran: that stage's pod may have come and gone while nobody looked.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal

from scheduler.model.documents import Workflow
from scheduler.model.pod import FunctionPod
from scheduler.slo.pod_timeline import PodTimeline, StageEnded, advance, begin, durations

Result = Literal["hit", "miss", "dropped"]
InstanceKey = tuple[str, str, str]  # namespace, workflow, request
_Place = tuple[str, str, str]  # namespace, function, node


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """An instance of a workflow came to its end."""

    namespace: str
    workflow: str
    result: Result
    duration_s: float | None  # from its arrival; None where it was dropped, or that is not known


@dataclass(slots=True)
class _Instance:
    found: bool  # by a list, so its beginning was not seen
    arrival: float | None = None
    deadline: float | None = None
    stages: set[str] = field(default_factory=set)  # of which a pod was seen
    stage_nodes: dict[str, str] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)  # that exist, whatever their phase
    living: set[str] = field(default_factory=set)  # that have not ended
    counted: bool = False
    touched: float = 0.0


class Tracker:
    """Follows function pods; what ends is handed to the listeners as it happens.

    ``on_stage`` also gets the Pod object, for what was granted stands on it. ``on_empty`` gets a
    namespace in which no function pod has been for the keep-alive.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        workflow_of: Callable[[str, str], Workflow | None],
        on_stage: Callable[[StageEnded, Mapping[str, Any]], None],
        on_request: Callable[[RequestEnded], None],
        on_empty: Callable[[str], None],
        abandoned_after_s: float = 600.0,
        keep_alive_s: float = 600.0,
    ) -> None:
        self._workflow_of = workflow_of
        self._on_stage = on_stage
        self._on_request = on_request
        self._on_empty = on_empty
        self._abandoned_after_s = abandoned_after_s
        self._keep_alive_s = keep_alive_s
        self._lives: dict[str, PodTimeline] = {}
        self._population: Counter[str] = Counter()  # pods that exist, by namespace
        self._empty_since: dict[str, float] = {}
        self._instances: dict[InstanceKey, _Instance] = {}
        self._warm: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        self._runs_at: dict[str, _Place] = {}  # of each pod that is bound and has not ended
        self._runs: Counter[_Place] = Counter()

    def see(
        self, raw: Mapping[str, Any], pod: FunctionPod, function: str, now: float, *, live: bool
    ) -> None:
        """A function pod as the cluster shows it; ``live`` False where a list does.

        Of a pod that a list shows first, nobody saw what has happened so far. Of one that is known
        already, the list tells what has happened since, if later than a watch would have.
        """
        life = self._lives.get(pod.uid)
        if life is None:
            life = self._lives[pod.uid] = begin(raw, pod, now, live=live)
            self._population[pod.namespace] += 1
            self._empty_since.pop(pod.namespace, None)
            end_seen = live and life.ending is not None
        else:
            end_seen = advance(life, raw, now)
        if life.node is not None:
            place = pod.namespace, function, life.node
            self._warm_up(place, now)
            if life.ending is None:
                self._starts(pod.uid, place)
            else:
                self._ends(pod.uid)
        if end_seen:
            self._on_stage(durations(life), raw)
        if pod.workflow is not None and pod.request is not None:
            self._advance_instance(life, pod, now, end_seen=end_seen)

    def uids(self) -> list[str]:
        """The pods that are followed."""
        return list(self._lives)

    def gone(self, uid: str, now: float) -> None:
        """The pod does not exist any more."""
        place = self._ends(uid)
        if place is not None:
            self._warm_up(place, now)
        life = self._lives.pop(uid, None)
        if life is None:
            return
        self._leaves(life.pod.namespace, now)
        if life.pod.workflow is None or life.pod.request is None:
            return
        key = (life.pod.namespace, life.pod.workflow, life.pod.request)
        instance = self._instances.get(key)
        if instance is not None:
            instance.pods.discard(uid)
            instance.living.discard(uid)
            self._touch(key, instance, now)

    def sweep(self, now: float) -> None:
        """Forget what is over, and count as dropped what was abandoned half-way.

        Instances and nodes stand in the order in which they were touched, so only those whose time
        has come are looked at, be there tens of thousands.
        """
        since = now - self._abandoned_after_s
        due = takewhile(lambda each: each[1].touched <= since, self._instances.items())
        for key, instance in list(due):
            if not instance.living and not instance.counted:
                instance.counted = True
                if self._began_here(key, instance):
                    self._on_request(RequestEnded(key[0], key[1], "dropped", None))
            if instance.pods:
                self._touch(key, instance, now)
            else:
                del self._instances[key]
        since = now - self._keep_alive_s
        for function, nodes in list(self._warm.items()):
            for node, _ in list(takewhile(lambda each: each[1] < since, nodes.items())):
                del nodes[node]
                if self._runs[*function, node]:
                    nodes[node] = now
            if not nodes:
                del self._warm[function]
        empty = takewhile(lambda each: each[1] < since, self._empty_since.items())
        for namespace, _ in list(empty):
            del self._empty_since[namespace]
            self._on_empty(namespace)

    def _began_here(self, key: InstanceKey, instance: _Instance) -> bool:
        """Whether all of it was seen, as far as can be told."""
        workflow = self._workflow_of(key[0], key[1])
        if instance.found or workflow is None:
            return False
        ran = (each for each in workflow.spec.stages if each.name in instance.stages)
        return all(instance.stages.issuperset(each.after) for each in ran)

    def _warm_up(self, place: _Place, now: float) -> None:
        namespace, function, node = place
        nodes = self._warm[namespace, function]
        nodes.pop(node, None)
        nodes[node] = now

    def _leaves(self, namespace: str, now: float) -> None:
        self._population[namespace] -= 1
        if not self._population[namespace]:
            del self._population[namespace]
            self._empty_since[namespace] = now

    def _starts(self, uid: str, place: _Place) -> None:
        if self._runs_at.get(uid) != place:
            self._ends(uid)  # what its workflow says it runs has changed
            self._runs_at[uid] = place
            self._runs[place] += 1

    def _ends(self, uid: str) -> _Place | None:
        place = self._runs_at.pop(uid, None)
        if place is not None:
            self._runs[place] -= 1
            if not self._runs[place]:
                del self._runs[place]
        return place

    def _touch(self, key: InstanceKey, instance: _Instance, now: float) -> None:
        instance.touched = now
        self._instances.pop(key, None)
        self._instances[key] = instance

    def stage_nodes(self, pod: FunctionPod) -> Mapping[str, str]:
        """The nodes on which the stages of the pod's instance ran or run, by stage."""
        if pod.workflow is None or pod.request is None:
            return {}
        instance = self._instances.get((pod.namespace, pod.workflow, pod.request))
        return {} if instance is None else instance.stage_nodes

    def warm_nodes(self, namespace: str, function: str) -> Collection[str]:
        """Nodes on which the function ran within the keep-alive, or runs; to ask ``in`` of."""
        return self._warm.get((namespace, function), {}).keys()

    def _advance_instance(
        self, life: PodTimeline, pod: FunctionPod, now: float, *, end_seen: bool
    ) -> None:
        assert pod.workflow is not None  # noqa: S101 - for the type checker; the caller asked
        assert pod.request is not None  # noqa: S101
        key = (pod.namespace, pod.workflow, pod.request)
        instance = self._instances.get(key) or _Instance(found=life.created is None)
        self._touch(key, instance, now)
        instance.pods.add(pod.uid)
        instance.stages.add(pod.stage)
        arrival = pod.arrival_s
        if arrival is None and not instance.found:
            arrival = life.created
        if arrival is not None:
            known = instance.arrival
            instance.arrival = arrival if known is None else min(known, arrival)
        if pod.deadline_s is not None:
            instance.deadline = pod.deadline_s
        if life.node is not None:
            instance.stage_nodes[pod.stage] = life.node
        if life.ending is None:
            instance.living.add(pod.uid)
            return
        instance.living.discard(pod.uid)
        if life.ending == "succeeded":
            instance.succeeded.add(pod.stage)
            self._finish_if_whole(key, instance, now, end_seen=end_seen)

    def _finish_if_whole(
        self, key: InstanceKey, instance: _Instance, now: float, *, end_seen: bool
    ) -> None:
        namespace, name, _ = key
        workflow = self._workflow_of(namespace, name)
        if instance.counted or workflow is None:
            return
        if any(stage.name not in instance.succeeded for stage in workflow.spec.stages):
            return
        instance.counted = True
        if instance.found and not end_seen:
            return
        arrival, deadline = instance.arrival, instance.deadline
        if deadline is None:
            if arrival is None:
                return
            deadline = arrival + workflow.spec.slo.latency_ms / 1000
        result: Result = "hit" if now <= deadline else "miss"
        duration_s = None if arrival is None else max(0.0, now - arrival)
        self._on_request(RequestEnded(namespace, name, result, duration_s))
