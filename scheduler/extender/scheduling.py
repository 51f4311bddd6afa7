"""Scheduling of one pod: plan it, try the candidates on nodes, return one `Decision`."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from scheduler.extender.nominations import Nomination, Nominations
from scheduler.extender.promises import Promises, gang_of
from scheduler.model.message_text import listed
from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod
from scheduler.placement.arrays import Int64Array
from scheduler.placement.candidates import CandidateTable
from scheduler.placement.members import GpuSlice, member_refusals, place_member
from scheduler.placement.node_names import NodeNames
from scheduler.placement.placement import Placement, place
from scheduler.placement.reasons import Refusal, Refusals, refusals
from scheduler.placement.scores import SCORE_MAX
from scheduler.placement.scoring import Affinities
from scheduler.planning.pod_planner import PodPlanner, TooLargeError
from scheduler.planning.pods import PendingPod, cpu_request, states_preference
from scheduler.planning.start_latency import StartLatencies
from scheduler.planning.state import State
from scheduler.server.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of scheduling one pod on the nodes of one call.

    Attributes:
        feasible: nodes that can hold the pod, in the order of the call.
        passing: nodes that filter returns. For a pod that states no preference, the best
            ``ESG_FILTER_NODES_MAX`` of ``feasible``, best first; else all of them.
        refusals: reasons of all other nodes.
        plan: plan of the pod; None for a pod of another owner, and while a Binding is in progress.
        placement: placement of the plan's candidates on the nodes; None without a plan.
    """

    feasible: Sequence[str]
    passing: list[str]
    refusals: Refusals = field(default_factory=Refusals)
    plan: Plan | None = None
    placement: Placement | None = None


class Scheduler:
    """Schedules pods by the current state; it changes nothing but promises.

    Attributes:
        planner: planner of pods over the same state.
        nominations: nodes and victims that preemption has chosen for pending pods.
        promises: shares that filter gave to members of gangs and of pools.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.planner = PodPlanner(state)
        self.nominations = Nominations(state.pods.pending, state.ledger)
        self.promises = Promises(state)

    def filter(self, pod: PendingPod, nodes: Sequence[str]) -> Decision:
        """Schedule the pod as `schedule`, and promise a member of a gang or of a pool its share.

        Raises:
            RefusedError: as `schedule`; or only promises to others are in the way. An error makes
                kube-scheduler retry by itself, which no event would when promises end.
        """
        self.promises.begin(pod)
        nodes = NodeNames.of(nodes)
        try:
            decision = self.schedule(pod, nodes)
            self._require_no_promise(pod, nodes, decision)
        except RefusedError:
            self.promises.end(pod.uid)
            raise
        return self.promise(pod, decision)

    def promise(self, pod: PendingPod, decision: Decision) -> Decision:
        """Promise a member its share on the best node.

        kube-scheduler would choose among several nodes without telling which. So this node alone
        passes for a member of a gang, and one of a pool gets no promise if others pass, too.
        """
        placement, function_pod = decision.placement, pod.function_pod
        if not decision.passing or placement is None or function_pod is None:
            return decision
        if placement.best is None or placement.candidate is None:
            return decision
        if gang_of(pod) is None and not (function_pod.is_member and len(decision.passing) == 1):
            return decision
        node = placement.fleet.nodes[placement.node_rows[placement.best]]
        gpu = placement.fleet.gpus[placement.gpu_rows[placement.best]]
        assert node is not None  # noqa: S101 - the pod fits there
        assert gpu is not None  # noqa: S101 - and on that GPU
        configuration = placement.candidate.configuration
        self.promises.add(pod, Nomination.of(function_pod, node.name, gpu.uuid, configuration))
        return replace(decision, passing=[node.name])

    def _require_no_promise(self, pod: PendingPod, nodes: NodeNames, decision: Decision) -> None:
        if decision.passing or not self.promises.against(pod.uid, is_own=False):
            return
        if (pod.raw.get("status") or {}).get("nominatedNodeName"):
            return  # an error would remove the nomination
        if self.schedule(pod, nodes, ignore_other_groups=True).passing:
            reason = next(iter(decision.refusals.values())).reason
            raise RefusedError(
                f"GPU shares are promised to pods that are placed now; retrying: {reason}"
            )

    def schedule(
        self, pod: PendingPod, nodes: Sequence[str], *, ignore_other_groups: bool = False
    ) -> Decision:
        """Plan the pod and try the candidates on these nodes.

        A pod of another owner is feasible everywhere. One that is too large for all nodes of the
        cluster is refused on each with one reason, so that it waits for a larger node. A pod whose
        Binding is in progress is feasible on that node alone: it must not go elsewhere until the
        outcome is known.

        Args:
            pod: pod to schedule.
            nodes: names of the call, each once.
            ignore_other_groups: place it on shares that are promised to other groups, too.

        Raises:
            RefusedError: the pod is malformed, or refers to an unknown document; or it requests a
                GPU share and has none of our labels.
        """
        if pod.problem:
            raise RefusedError(pod.problem)
        if pod.function_pod is None:
            return Decision(list(nodes), list(nodes))
        nodes = NodeNames.of(nodes)
        reservation = self._state.ledger.reservation(pod.uid)
        if reservation is not None:
            return _binding_in_progress(reservation.node, nodes)
        with self._reserved_for_others(pod, ignore_other_groups=ignore_other_groups):
            try:
                plan, placement = self._place(pod.function_pod, nodes)
            except TooLargeError as error:
                return _refused_everywhere(str(error), nodes)
            return self._decision(pod, nodes, plan, placement)

    def score(self, pod: PendingPod, nodes: Sequence[str]) -> Mapping[str, int]:
        """Score the nodes, 0 to 10, in their order; equally where the pod may be on any of them.

        Raises:
            RefusedError: as `schedule`.
        """
        if pod.problem:
            raise RefusedError(pod.problem)
        if pod.function_pod is None:
            return dict.fromkeys(nodes, 0)
        if self._state.ledger.reservation(pod.uid) is not None:
            return dict.fromkeys(nodes, SCORE_MAX)
        with self._reserved_for_others(pod):
            _, placement = self._place(pod.function_pod, NodeNames.of(nodes))
        return dict(zip(nodes, placement.scores.tolist(), strict=True))

    def _place(self, pod: FunctionPod, nodes: NodeNames) -> tuple[Plan, Placement]:
        """Plan the pod and place the first candidate that fits.

        If only nodes with a long start have room, the SLO counts as lost there: kube-scheduler may
        not retry for minutes, and a pod without a deadline would wait forever.
        """
        node_rows = nodes.rows(self._state.ledger.fleet)
        plan, latencies = self.planner.plan_for_nodes(pod, node_rows)
        placement = self._place_plan(pod, node_rows, plan, latencies)
        if placement.candidate_index is None and plan.feasible and len(latencies.distinct_ms) > 1:
            late_plan = self.planner.plan(
                pod, fleet=self.planner.fleet(), starts_ms=latencies.distinct_ms[-1:]
            )
            late_placement = self._place_plan(pod, node_rows, late_plan, latencies)
            if late_placement.candidate_index is not None:
                return late_plan, late_placement
        return plan, placement

    def _place_plan(
        self, pod: FunctionPod, node_rows: Int64Array, plan: Plan, latencies: StartLatencies
    ) -> Placement:
        state = self._state
        if pod.is_member:
            function = state.documents.function_of(pod)
            return place_member(
                state.ledger.fleet,
                CandidateTable(state.ledger.fleet, plan.candidates, cpu_request(pod)),
                node_rows,
                node_start_ms=latencies.node_ms,
                slices=state.ledger.pools.slices(pod.pool_name, function),
                home_key=self._affinities(pod).home_key,
            )
        return place(
            state.ledger.fleet,
            plan.candidates,
            node_rows,
            node_start_ms=latencies.node_ms,
            policy=state.settings.placement,
            cpu=cpu_request(pod),
            mix_of=state.ledger.mix,
            affinities=self._affinities(pod),
        )

    def _reserved_for_others(
        self, pod: PendingPod, *, ignore_other_groups: bool = False
    ) -> AbstractContextManager[None]:
        """Reserve what the pod must not take; the block must not await.

        Nominated and promised shares, and for a holder the GPUs of which its pool has a slice.
        """
        fleet = self._state.ledger.fleet
        percent = fleet.limits.percent_max
        of_pool = [
            Nomination(slice_.node, slice_.gpu_uuid, percent, 0, 0)
            for slice_ in self._slices_of_holder(pod)
        ]
        promised = self.promises.against(pod.uid, is_own=True if ignore_other_groups else None)
        return self.nominations.reserved(fleet, pod, [*of_pool, *promised])

    def _slices_of_holder(self, pod: PendingPod) -> list[GpuSlice]:
        holder = pod.function_pod
        if holder is None or not holder.is_holder:
            return []
        return self._state.ledger.pools.slices(holder.pool_name)

    def _decision(
        self, pod: PendingPod, nodes: NodeNames, plan: Plan, placement: Placement
    ) -> Decision:
        feasible = nodes.part(placement.gpu_rows >= 0)
        limit = self._state.settings.filter_nodes_max or len(feasible)
        if len(feasible) > limit and not states_preference(pod.raw):
            # kube-scheduler treats a node in neither list of the answer as one that was not sent.
            passing = nodes.at(placement.best_first(limit))
        else:
            passing = list(feasible)
        return Decision(
            feasible,
            passing,
            self._refusals(pod, nodes, plan, placement),
            plan,
            placement,
        )

    def _refusals(
        self, pod: PendingPod, nodes: NodeNames, plan: Plan, placement: Placement
    ) -> Refusals:
        if pod.function_pod is not None and pod.function_pod.is_member:
            slices = self._state.ledger.pools.slices(pod.function_pod.pool_name)
            refused = member_refusals(placement, nodes, slices)
        else:
            refused = refusals(placement, nodes, plan.budget_ms)
        problems = self._state.nodes.problems
        holder_slices = self._slices_of_holder(pod)
        conflicts = self._state.ledger.name_conflicts()
        if not (problems or holder_slices or conflicts):
            return refused
        reasons = dict(refused)
        for slice_ in holder_slices:
            if (refusal := reasons.get(slice_.node)) is not None:
                note = f"the pool has a slice of GPU {slice_.gpu_uuid} already"
                reasons[slice_.node] = replace(refusal, reason=f"{refusal.reason}; {note}")
        for name in reasons.keys() & problems.keys():
            reasons[name] = Refusal(problems[name], resolvable=False)
        for gpu in conflicts:
            if (refusal := reasons.get(gpu.node)) is not None:
                note = f"GPU {gpu.gpu_index} is known as a GPU of {listed(list(gpu.others))}, too"
                reasons[gpu.node] = replace(refusal, reason=f"{refusal.reason}; {note}")
        return Refusals.of(reasons)

    def _affinities(self, pod: FunctionPod) -> Affinities:
        state = self._state
        function = state.documents.function_of(pod)
        stage_nodes = state.history.stage_nodes(pod)
        predecessors = [stage.name for stage in state.documents.predecessors(pod)]
        return Affinities(
            predecessors={stage_nodes[stage] for stage in predecessors if stage in stage_nodes},
            gpu_ready_ms=state.warm_rows(pod).gpu_ready_ms,
            home_key=f"{pod.namespace}/{pod.workflow or ''}/{function}",
        )


def _refused_everywhere(reason: str, nodes: Sequence[str]) -> Decision:
    refusal = Refusal(reason, resolvable=False)
    return Decision([], [], Refusals([(refusal, list(nodes))]))


def _binding_in_progress(node: str, nodes: Sequence[str]) -> Decision:
    reason = f"the pod has a reservation on node {node}: its Binding is in progress or done"
    refusal = Refusal(reason, resolvable=False)
    feasible = [name for name in nodes if name == node]
    others = [name for name in nodes if name != node]
    return Decision(feasible, feasible, Refusals([(refusal, others)]))
