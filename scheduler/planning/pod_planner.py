"""Plans of single pods over the cache of the cluster."""

import time

import numpy as np

from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.documents import GridPoint
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.names import ANNOTATION_CONFIGURATION
from scheduler.model.plan import Candidate, Configuration, Plan
from scheduler.model.pod import FunctionPod
from scheduler.placement.arrays import Int64Array
from scheduler.planning.start_latency import StartLatencies, start_latencies
from scheduler.planning.state import State
from scheduler.search.planner import NoNodeError, PlanningError, PlanRequest
from scheduler.server.errors import RefusedError


class TooLargeError(RefusedError):
    """No node is large enough for the pod's stage, or for a later one; larger nodes may come."""


class PodPlanner:
    """Plans pods by the current state; it changes nothing but metrics."""

    def __init__(self, state: State) -> None:
        self._state = state

    def plan(
        self,
        pod: FunctionPod,
        *,
        fleet: FleetCapacity | None = None,
        starts_ms: tuple[float, ...] | None = None,
    ) -> Plan:
        """Compute the candidates for a pod with the slack that is left now.

        Args:
            pod: pod to plan.
            fleet: capacity of the nodes to plan for; None: nodes of any size, with all GPU models
                that have profiles.
            starts_ms: allowed start latencies; None: the shortest on any node.

        Raises:
            TooLargeError: no node is large enough for the stage, or for a later one.
            RefusedError: workflow, stage or profile is unknown, or its ceilings leave nothing.
        """
        if pod.states_share:
            return self._stated_plan(pod)
        state = self._state
        try:
            workflow = pod.workflow and state.documents.catalogue.workflow(
                pod.namespace, pod.workflow
            )
            slo_ms = workflow.spec.slo.latency_ms if workflow else None
            request = PlanRequest(
                namespace=pod.namespace,
                workflow=pod.workflow,
                stage=pod.stage,
                slack_ms=pod.slack_ms(slo_ms, state.clock()),
                queued=pod.queued,
                rate_rps=pod.rate_rps,
                configuration=pod.configuration,
                # A member requests next to nothing itself: its slice limits it.
                cpu_max=None
                if pod.is_member or pod.cpu_ceiling_milli is None
                else pod.cpu_ceiling_milli // 1000,
                gpu_percent_max=None if pod.is_member else pod.gpu_percent_ceiling,
                fleet=fleet,
                other_cpu_milli=pod.other_containers_cpu_milli,
                starts_ms=starts_ms or self._shortest_start_ms(pod),
                later_waits_ms=state.history.later_waits_ms(pod),
                margin_ratio=state.settings.margin_ratio,
                progress=state.history.progress(pod, state.clock()),
                k=state.settings.candidates,
            )
            began_s = time.perf_counter()
            plan = state.planner.plan(request)
        except NoNodeError as error:
            raise TooLargeError(str(error)) from None
        except (UnknownDocumentError, PlanningError) as error:
            raise RefusedError(str(error)) from None
        state.metrics.planned(plan, time.perf_counter() - began_s)
        return plan

    def plan_for_nodes(
        self, pod: FunctionPod, node_rows: Int64Array
    ) -> tuple[Plan, StartLatencies]:
        """Compute the candidates for the nodes of the cluster, with these nodes' start latencies.

        Raises:
            RefusedError: as `plan`.
        """
        latencies = start_latencies(self._state, pod, node_rows)
        plan = self.plan(pod, fleet=self.fleet(), starts_ms=latencies.distinct_ms)
        return plan, latencies

    def _stated_plan(self, pod: FunctionPod) -> Plan:
        """Return the only configuration of the pod, on each GPU model that it may have."""
        fleet = self._state.ledger.fleet.capacity
        models = [pod.gpu_model] if pod.gpu_model else sorted(fleet.models)
        if not models:
            raise TooLargeError("no node has a GPU to share (no inventory annotation)")
        if (stated := pod.configuration) is None:
            cpu, percent = (pod.cpu_ceiling_milli or 0) // 1000, pod.gpu_percent_ceiling or 0
            configuration = Configuration(0, cpu, percent, 0, 0.0)
        else:
            _check_ceilings(pod, stated)
            configuration = Configuration(
                stated.batch, stated.cpu, stated.gpu_percent, pod.memory_mib, 0.0
            )
        candidates = [Candidate(configuration, model, 0.0, 0.0, 0.0) for model in models]
        return Plan(feasible=True, budget_ms=None, candidates=tuple(candidates))

    def fleet(self) -> FleetCapacity | None:
        """Capacity of the cluster's nodes; None, for any, while no node has a GPU."""
        capacity = self._state.ledger.fleet.capacity
        return capacity if capacity.sizes else None

    def plan_at_admission(self, pod: FunctionPod) -> Plan:
        """Compute the candidates for a pod that is admitted, on the nodes of the cluster.

        If no configuration fits the present nodes, their size is ignored: larger ones may come.

        Raises:
            RefusedError: as `plan`.
        """
        fleet = self.fleet()
        try:
            return self.plan(pod, fleet=fleet)
        except RefusedError:
            if fleet is None:
                raise
            return self.plan(pod, fleet=FleetCapacity.of_models(fleet.models))

    def _shortest_start_ms(self, pod: FunctionPod) -> tuple[float]:
        fleet = self._state.ledger.fleet
        with_gpus = np.flatnonzero(fleet.arrays.node_gpus[: len(fleet.nodes)])
        return (start_latencies(self._state, pod, with_gpus).distinct_ms[0],)


def _check_ceilings(pod: FunctionPod, stated: GridPoint) -> None:
    """Refuse a share above the pod's requests, which quotas count: annotations may change."""
    cpu_milli, percent = pod.cpu_ceiling_milli, pod.gpu_percent_ceiling
    if (cpu_milli is not None and 1000 * stated.cpu > cpu_milli) or (
        percent is not None and stated.gpu_percent > percent
    ):
        raise RefusedError(
            f"annotation {ANNOTATION_CONFIGURATION}: {stated} is above the pod's requests; create "
            "the pod again"
        )
