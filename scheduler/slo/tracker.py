"""Workflow instances: which stage ran where, and whether the whole instance met its SLO.

An instance is the set of pods with the same namespace, workflow and label ``request``. It is
*finished* when a pod of every stage has succeeded, and *dropped* when all its pods have ended and
nothing has happened for a while (which gives an engine time to retry a failed stage).

If a list, not a watch, reported the first pod of an instance, earlier stages and an earlier arrival
are unknown. Such an instance is never dropped. It is a hit or a miss only if it ends under
observation and an annotation gives its arrival or deadline; an end before the list was counted by
an earlier process. An instance that lacks a predecessor of a stage that ran is not dropped either:
the predecessor's pod may have come and gone without a report.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal

from scheduler.model.documents import Workflow
from scheduler.model.pod import FunctionPod
from scheduler.model.progress import UNKNOWN_PROGRESS, InstanceProgress
from scheduler.slo.pod_timeline import (
    PodTimeline,
    StageEnded,
    advance,
    begin,
    durations,
    predicted_end_s,
)
from scheduler.slo.stage_waits import StageWaits

Result = Literal["hit", "miss", "dropped"]
InstanceKey = tuple[str, str, str]  # namespace, workflow, request
_Place = tuple[str, str, str]  # namespace, function, node


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """The end of a workflow instance."""

    namespace: str
    workflow: str
    result: Result
    duration_s: float | None  # from its arrival; None: dropped, or the arrival is unknown


@dataclass(slots=True)
class _Instance:
    from_list: bool  # a list reported it first, so its beginning is unknown
    arrival_s: float | None = None
    deadline_s: float | None = None
    stages: set[str] = field(default_factory=set)  # that had a pod
    stage_nodes: dict[str, str] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)  # stages of which a pod has failed
    ended_s: dict[str, float] = field(default_factory=dict)  # of succeeded stages, where reported
    pods: set[str] = field(default_factory=set)  # that exist, in any phase
    active: set[str] = field(default_factory=set)  # that have not ended
    ends_s: dict[str, float] = field(default_factory=dict)  # predicted, of stages that run
    counted: bool = False
    touched_s: float = 0.0


class Tracker:
    """Tracks function pods, and calls listeners when a stage, an instance or a namespace ends.

    ``on_stage`` also gets the Pod object, because the grant is in its annotations. ``on_empty``
    gets a namespace without function pods for the keep-alive.

    Attributes:
        waits: waits that were observed between the stages.
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
        self.waits = StageWaits()
        self._workflow_of = workflow_of
        self._on_stage = on_stage
        self._on_request = on_request
        self._on_empty = on_empty
        self._abandoned_after_s = abandoned_after_s
        self._keep_alive_s = keep_alive_s
        self._timelines: dict[str, PodTimeline] = {}
        self._population: Counter[str] = Counter()  # pods that exist, by namespace
        self._empty_since_s: dict[str, float] = {}
        self._instances: dict[InstanceKey, _Instance] = {}
        self._warm_s: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        # The same nodes without their times, until one comes or goes.
        self._warm_nodes: dict[tuple[str, str], frozenset[str]] = {}
        self._runs_at: dict[str, _Place] = {}  # place of each pod that is bound and has not ended
        self._runs: Counter[_Place] = Counter()

    def observe(
        self, raw: Mapping[str, Any], pod: FunctionPod, function: str, now_s: float, *, live: bool
    ) -> None:
        """Take in the current state of a function pod; ``live``: from a watch, not a list.

        The past of a pod that a list reports first is unknown. For a known pod, a list reports the
        changes since the last report, only later than a watch would have.
        """
        timeline = self._timelines.get(pod.uid)
        if timeline is None:
            timeline = self._timelines[pod.uid] = begin(raw, pod, now_s, live=live)
            self._population[pod.namespace] += 1
            self._empty_since_s.pop(pod.namespace, None)
            end_seen = live and timeline.ending is not None
        else:
            end_seen = advance(timeline, raw, now_s)
        if timeline.node is not None:
            place = pod.namespace, function, timeline.node
            self._mark_warm(place, now_s)
            if timeline.ending is None:
                self._start_run(pod.uid, place)
            else:
                self._end_run(pod.uid)
        if end_seen:
            self._on_stage(durations(timeline), raw)
        if pod.workflow is not None and pod.request is not None:
            key = (pod.namespace, pod.workflow, pod.request)
            self._advance_instance(key, timeline, raw, now_s, end_seen=end_seen)

    def uids(self) -> list[str]:
        """List the UIDs of the tracked pods."""
        return list(self._timelines)

    def remove(self, uid: str, now_s: float) -> None:
        """Remove a deleted pod."""
        place = self._end_run(uid)
        if place is not None:
            self._mark_warm(place, now_s)
        timeline = self._timelines.pop(uid, None)
        if timeline is None:
            return
        pod = timeline.pod
        self._leave_namespace(pod.namespace, now_s)
        if pod.workflow is None or pod.request is None:
            return
        key = (pod.namespace, pod.workflow, pod.request)
        instance = self._instances.get(key)
        if instance is not None:
            instance.pods.discard(uid)
            instance.active.discard(uid)
            instance.ends_s.pop(pod.stage, None)
            self._touch(key, instance, now_s)

    def expire(self, now_s: float) -> None:
        """Remove what is over; count abandoned instances as dropped.

        Instances and nodes are in the order of their last change, so this looks only at those that
        are due, even among tens of thousands.
        """
        since_s = now_s - self._abandoned_after_s
        due = takewhile(lambda item: item[1].touched_s <= since_s, self._instances.items())
        for key, instance in list(due):
            if not instance.active and not instance.counted:
                instance.counted = True
                if self._is_complete(key, instance):
                    self._on_request(RequestEnded(key[0], key[1], "dropped", None))
            if instance.pods:
                self._touch(key, instance, now_s)
            else:
                del self._instances[key]
        since_s = now_s - self._keep_alive_s
        for function, nodes in list(self._warm_s.items()):
            for node, _ in list(takewhile(lambda item: item[1] < since_s, nodes.items())):
                del nodes[node]
                if self._runs[*function, node]:
                    nodes[node] = now_s
                else:
                    self._warm_nodes.pop(function, None)
            if not nodes:
                del self._warm_s[function]
        empty = takewhile(lambda item: item[1] < since_s, self._empty_since_s.items())
        for namespace, _ in list(empty):
            del self._empty_since_s[namespace]
            self._on_empty(namespace)

    def _is_complete(self, key: InstanceKey, instance: _Instance) -> bool:
        """Return true if no pod of the instance seems to be missing from the reports."""
        workflow = self._workflow_of(key[0], key[1])
        if instance.from_list or workflow is None:
            return False
        ran = (stage for stage in workflow.spec.stages if stage.name in instance.stages)
        return all(instance.stages.issuperset(stage.after) for stage in ran)

    def _mark_warm(self, place: _Place, now_s: float) -> None:
        namespace, function, node = place
        nodes = self._warm_s[namespace, function]
        if nodes.pop(node, None) is None:
            self._warm_nodes.pop((namespace, function), None)
        nodes[node] = now_s

    def _leave_namespace(self, namespace: str, now_s: float) -> None:
        self._population[namespace] -= 1
        if not self._population[namespace]:
            del self._population[namespace]
            self._empty_since_s[namespace] = now_s

    def _start_run(self, uid: str, place: _Place) -> None:
        if self._runs_at.get(uid) != place:
            self._end_run(uid)  # the workflow now names another function for the stage
            self._runs_at[uid] = place
            self._runs[place] += 1

    def _end_run(self, uid: str) -> _Place | None:
        place = self._runs_at.pop(uid, None)
        if place is not None:
            self._runs[place] -= 1
            if not self._runs[place]:
                del self._runs[place]
        return place

    def _touch(self, key: InstanceKey, instance: _Instance, now_s: float) -> None:
        instance.touched_s = now_s
        self._instances.pop(key, None)
        self._instances[key] = instance

    def stage_nodes(self, pod: FunctionPod) -> Mapping[str, str]:
        """Map the stages of the pod's instance to the nodes on which they ran or run."""
        if pod.workflow is None or pod.request is None:
            return {}
        instance = self._instances.get((pod.namespace, pod.workflow, pod.request))
        return {} if instance is None else instance.stage_nodes

    def progress(self, pod: FunctionPod, now_s: float) -> InstanceProgress:
        """Return the stages of the pod's instance that have ended or run."""
        if pod.workflow is None or pod.request is None:
            return UNKNOWN_PROGRESS
        instance = self._instances.get((pod.namespace, pod.workflow, pod.request))
        if instance is None:
            return UNKNOWN_PROGRESS
        return InstanceProgress(
            frozenset(instance.succeeded),
            {stage: 1000.0 * (end_s - now_s) for stage, end_s in instance.ends_s.items()},
            is_known=not instance.from_list,
        )

    def later_waits_ms(self, pod: FunctionPod) -> float:
        """Return how long requests wait, by observation, at all stages after the pod's."""
        workflow = pod.workflow and self._workflow_of(pod.namespace, pod.workflow)
        return self.waits.later_ms(workflow, pod.stage) if workflow else 0.0

    def warm_nodes(self, namespace: str, function: str) -> frozenset[str]:
        """Return the nodes that ran the function within the keep-alive, or run it.

        It is the same object until one comes or goes.
        """
        key = namespace, function
        if key not in self._warm_s:
            return frozenset()
        nodes = self._warm_nodes.get(key)
        if nodes is None:
            nodes = self._warm_nodes[key] = frozenset(self._warm_s[key])
        return nodes

    def _advance_instance(
        self,
        key: InstanceKey,
        timeline: PodTimeline,
        raw: Mapping[str, Any],
        now_s: float,
        *,
        end_seen: bool,
    ) -> None:
        pod = timeline.pod
        instance = self._instances.get(key) or _Instance(from_list=timeline.created_s is None)
        self._touch(key, instance, now_s)
        instance.pods.add(pod.uid)
        instance.stages.add(pod.stage)
        arrival_s = pod.arrival_s
        if arrival_s is None and not instance.from_list:
            arrival_s = timeline.created_s
        if arrival_s is not None:
            previous_s = instance.arrival_s
            instance.arrival_s = arrival_s if previous_s is None else min(previous_s, arrival_s)
        if pod.deadline_s is not None:
            instance.deadline_s = pod.deadline_s
        if timeline.node is not None:
            instance.stage_nodes[pod.stage] = timeline.node
        if timeline.ending is None:
            instance.active.add(pod.uid)
            if timeline.node is not None:
                instance.ends_s[pod.stage] = predicted_end_s(timeline, raw, now_s)
            return
        instance.active.discard(pod.uid)
        instance.ends_s.pop(pod.stage, None)
        if timeline.ending == "failed":
            instance.failed.add(pod.stage)
        elif timeline.ending == "succeeded":
            if end_seen and pod.stage not in instance.failed:
                self._record_wait(key, instance, timeline)
            instance.succeeded.add(pod.stage)
            self._finish_if_complete(key, instance, now_s, end_seen=end_seen)

    def _record_wait(self, key: InstanceKey, instance: _Instance, timeline: PodTimeline) -> None:
        """Record how long the stage waited, if the ends of its predecessors were reported."""
        if timeline.ended_s is not None:
            instance.ended_s[timeline.pod.stage] = timeline.ended_s
        workflow = self._workflow_of(key[0], key[1])
        stage = workflow and workflow.stage(timeline.pod.stage)
        if not stage or not stage.after or timeline.running_s is None:
            return
        ends_s = [instance.ended_s.get(before) for before in stage.after]
        reported_s = [end_s for end_s in ends_s if end_s is not None]
        if len(reported_s) == len(ends_s):
            self.waits.record(key[0], key[1], stage.name, timeline.running_s - max(reported_s))

    def _finish_if_complete(
        self, key: InstanceKey, instance: _Instance, now_s: float, *, end_seen: bool
    ) -> None:
        namespace, name, _ = key
        workflow = self._workflow_of(namespace, name)
        if instance.counted or workflow is None:
            return
        if any(stage.name not in instance.succeeded for stage in workflow.spec.stages):
            return
        instance.counted = True
        if instance.from_list and not end_seen:
            return
        arrival_s, deadline_s = instance.arrival_s, instance.deadline_s
        if deadline_s is None:
            if arrival_s is None:
                return
            deadline_s = arrival_s + workflow.spec.slo.latency_ms / 1000
        result: Result = "hit" if now_s <= deadline_s else "miss"
        duration_s = None if arrival_s is None else max(0.0, now_s - arrival_s)
        self._on_request(RequestEnded(namespace, name, result, duration_s))
