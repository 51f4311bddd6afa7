"""Filter and prioritize: which nodes can hold a pod, and how good each is. It changes nothing."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler.extender.pods import PendingPod, cpu_request, describe, states_preference
from scheduler.extender.start_latency import StartLatencies, starts
from scheduler.extender.state import State
from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod
from scheduler.placement.kernels import SCORE_MAX
from scheduler.placement.placement import Placement, place
from scheduler.placement.reasons import Refusal, refusals
from scheduler.placement.scoring import Affinities
from scheduler.search.planner import PlanningError, PlanRequest


class RefusedError(Exception):
    """What was asked cannot be answered; the message goes to kube-scheduler as ``Error``."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one pod over the nodes asked about."""

    pod: FunctionPod
    plan: Plan
    placing: Placement
    names: list[str]
    now: float

    def passing(self) -> list[str]:
        """The names of the nodes that hold the pod, in the order of the question."""
        return [self.names[i] for i in np.flatnonzero(self.placing.gpu_rows >= 0)]


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """The nodes that pass, and a refusal for each that does not."""

    passing: list[str]
    refused: Mapping[str, Refusal]


class Scheduler:
    """Decides from the state as it is now."""

    def __init__(self, state: State) -> None:
        self._state = state

    def plan(
        self,
        pod: FunctionPod,
        *,
        models: frozenset[str] | None = None,
        starts_ms: tuple[float, ...] | None = None,
    ) -> Plan:
        """The candidates for a pod, with the slack that is left now.

        Args:
            pod: the pod.
            models: of GPUs; None: all that are profiled.
            starts_ms: how long a start may take; None: the least that it takes on any node.

        Raises:
            RefusedError: workflow, stage or profile is not known, or its ceilings leave nothing.
        """
        state = self._state
        try:
            workflow = pod.workflow and state.catalogue.workflow(pod.namespace, pod.workflow)
            slo_ms = workflow.spec.slo.latency_ms if workflow else None
            request = PlanRequest(
                namespace=pod.namespace,
                workflow=pod.workflow,
                stage=pod.stage,
                slack_ms=pod.slack_ms(slo_ms, state.clock()),
                queued=pod.queued,
                rate=pod.rate,
                cpu_max=None if pod.cpu_ceiling_milli is None else pod.cpu_ceiling_milli // 1000,
                gpu_percent_max=pod.gpu_percent_ceiling,
                gpu_models=models,
                starts_ms=starts_ms or self._least_start_ms(pod),
                margin_ratio=state.settings.margin_ratio,
                k=state.settings.candidates,
            )
            began = time.perf_counter()
            plan = state.planner.plan(request)
        except (UnknownDocumentError, PlanningError) as error:
            raise RefusedError(str(error)) from None
        state.metrics.planned(plan, time.perf_counter() - began)
        return plan

    def plan_for(self, pod: FunctionPod, names: Iterable[str]) -> tuple[Plan, StartLatencies]:
        """The candidates on the GPUs that there are, and how long a start takes on these nodes."""
        state = self._state
        taken = starts(state, pod, names)
        # Where no node has a GPU yet, any model may be planned for: the refusals then tell.
        models = frozenset(state.ledger.fleet.models) or None
        return self.plan(pod, models=models, starts_ms=taken.distinct_ms), taken

    def decide(self, pod: FunctionPod, names: list[str]) -> Decision:
        """Plan, and try the candidates on these nodes.

        Where only nodes that start late have room, the SLO counts as lost there: kube-scheduler may
        not ask again for minutes, and a pod without a deadline would wait for ever.
        """
        plan, taken = self.plan_for(pod, names)
        decision = self._placed(pod, names, plan, taken)
        if decision.placing.chosen is None and plan.feasible and len(taken.distinct_ms) > 1:
            models = frozenset(self._state.ledger.fleet.models)
            late = self.plan(pod, models=models, starts_ms=taken.distinct_ms[-1:])
            lost = self._placed(pod, names, late, taken)
            if lost.placing.chosen is not None:
                return lost
        return decision

    def _placed(
        self, pod: FunctionPod, names: list[str], plan: Plan, taken: StartLatencies
    ) -> Decision:
        state = self._state
        fleet = state.ledger.fleet
        placing = place(
            fleet,
            plan.candidates,
            fleet.rows(names),
            node_start_ms=taken.node_ms,
            policy=state.settings.placement,
            cpu=cpu_request(pod),
            mix_of=state.ledger.mix,
            affinities=self._affinities(pod),
        )
        return Decision(pod, plan, placing, names, state.clock())

    def filter(self, raw: Mapping[str, Any], names: list[str]) -> FilterAnswer:
        """Which of the nodes can hold the pod. A pod that is none of ours passes everywhere.

        Raises:
            RefusedError: the pod is ours, and malformed, or asks for what is not known; or it asks
                for a share, and has no label of ours.
        """
        known = describe(raw)
        if known.pod is None:
            if known.problem:
                raise RefusedError(known.problem)
            return FilterAnswer(names, {})
        under_way = self._binding_under_way(known, names)
        if under_way is not None:
            return under_way
        decision = self.decide(known.pod, names)
        passing = decision.passing()
        most = self._state.settings.filter_nodes_max
        if most and len(passing) > most and not states_preference(raw):
            # kube-scheduler takes a node that is in neither list for one that was not asked about.
            passing = [names[i] for i in decision.placing.best_first()[:most]]
        return FilterAnswer(passing, self.refusals(decision))

    def prioritize(self, raw: Mapping[str, Any], names: list[str]) -> dict[str, int]:
        """A score of 0 to 10 for every node; the same for all where the pod is none of ours."""
        known = describe(raw)
        if known.pod is None:
            return dict.fromkeys(names, 0)
        if self._binding_under_way(known, names) is not None:
            return dict.fromkeys(names, SCORE_MAX)
        decision = self.decide(known.pod, names)
        return dict(zip(names, decision.placing.scores.tolist(), strict=True))

    def refusals(self, decision: Decision) -> dict[str, Refusal]:
        """Why each node that does not hold the pod does not."""
        state = self._state
        told = refusals(decision.placing, decision.names, decision.plan.budget_ms)
        for name in told.keys() & state.node_problems.keys():
            told[name] = Refusal(state.node_problems[name], resolvable=False)
        return told

    def _least_start_ms(self, pod: FunctionPod) -> tuple[float]:
        nodes = self._state.ledger.fleet.nodes
        names = (node.name for node in nodes if node is not None and node.gpus)
        return (starts(self._state, pod, names).distinct_ms[0],)

    def _affinities(self, pod: FunctionPod) -> Affinities:
        state = self._state
        function = state.function_of(pod)
        before = [stage.name for stage in state.stages_before(pod)]
        ran_on = state.tracker.stage_nodes(pod)
        return Affinities(
            predecessors={ran_on[stage] for stage in before if stage in ran_on},
            warm=state.tracker.warm_nodes(pod.namespace, function),
            home_key=f"{pod.namespace}/{pod.workflow or ''}/{function}",
        )

    def _binding_under_way(self, known: PendingPod, names: list[str]) -> FilterAnswer | None:
        """A pod whose Binding may have landed must not be offered elsewhere until that is known."""
        held = self._state.ledger.reservation(known.uid)
        if held is None:
            return None
        reason = f"a Binding of this pod to node {held.node} is under way"
        return FilterAnswer(
            [name for name in names if name == held.node],
            {name: Refusal(reason, resolvable=False) for name in names if name != held.node},
        )
