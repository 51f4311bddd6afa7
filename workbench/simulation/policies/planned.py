"""ESG and its exact form: the live planner, called before each run with the remaining slack.

Source: "ESG: Pipeline-Conscious Efficient Scheduling of DNN Workflows on Serverless Platforms with
Shareable GPUs", Hui et al., HPDC 2024 (arXiv 2404.16812), from its abstract and summaries; no
public code of it is known to us. docs/algorithm.md says which part of the search is the paper's.

The rule. The SLO is split among groups of stages by dominators and average normalised lengths.
Before each run, the remaining stages of the group are searched with the remaining time of its part,
and the K cheapest first configurations are tried in order: on the predecessor's node, on nodes
where the function is warm, then from its home node on. After three misses the minimum configuration
is forced. `exact` is the same with one search over all remaining stages and the whole slack.

Reconstructed: the search itself, where the summaries leave it open, and the split of workflows that
are not series-parallel. Differences from the paper:

- The engine examines a queue when something has changed, not periodically, so misses count only if
  they are 100 ms apart (`workbench.simulation.retries`).
- Plans include the margin that the workflow's objective needs, and the rules decide how a lost
  SLO is served. The paper specifies neither.
- The slack is rounded down so that answers can be cached (`Planned`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from scheduler.model.plan import Candidate, Plan
from scheduler.model.progress import NOTHING_BEGUN
from scheduler.search.planner import Planner, PlanRequest
from workbench.simulation.containers.configurations import batches_filled
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest

Answers = dict[tuple[int, int, tuple[float, ...]], tuple[Candidate, ...]]

STEPS_MIN = 500  # of an SLO: rounding takes at most one step off a slack
_CACHED_MAX = 65_536  # answers per queue


class Planned(Policy):
    """Calls the planner with the slack rounded down to whole steps, and caches its answers.

    A step is 1 ms, or for an SLO below `STEPS_MIN` ms a half, a quarter and so on. Rounding down
    never plans with time that does not exist, and with a few thousand steps most requests repeat.
    A queue longer than a profiled batch counts as that batch, and a negative slack as none.
    """

    mode: ClassVar[Literal["exact", "esg"]]

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._planner = Planner(context.catalogue, replace(context.rules, policy=self.mode))
        self._queues: dict[QueueKey, tuple[tuple[int, ...], int, Answers]] = {}
        self._same: dict[object, tuple[Candidate, ...]] = {}

    def candidates(self, request: SchedulingRequest) -> Sequence[Candidate]:
        """Return the K best configurations on each GPU model and for each kind of start."""
        prepared = self._queues.get(request.key)
        if prepared is None:
            prepared = self._queues[request.key] = self._prepared(request.key)
        batches, steps_per_ms, answers = prepared
        queued, slack_ms = request.queued, request.slack_ms
        batch = batches[queued if queued < len(batches) else -1]
        steps = int(slack_ms * steps_per_ms) if slack_ms >= 0.0 else -1
        if request.progress is not NOTHING_BEGUN and self.mode == "exact":
            return self._planned(request, batch, steps / steps_per_ms)
        key = batch, steps, request.starts_ms
        answer = answers.get(key)
        if answer is None:
            if len(answers) >= _CACHED_MAX:
                answers.clear()
                self._same.clear()
            answer = answers[key] = self._planned(request, batch, steps / steps_per_ms)
        return answer

    def _prepared(self, key: QueueKey) -> tuple[tuple[int, ...], int, Answers]:
        slo_ms = self.context.catalogue.workflow(*key[:2]).spec.slo.latency_ms
        steps_per_ms = 1
        while slo_ms * steps_per_ms < STEPS_MIN:
            steps_per_ms *= 2
        namespace, workflow, stage = key
        self._planner.stage(
            PlanRequest(
                namespace=namespace,
                workflow=workflow,
                stage=stage,
                fleet=self.context.fleet,
            )
        )
        return batches_filled(self.context.profile(key)), steps_per_ms, {}

    def _planned(
        self, request: SchedulingRequest, batch: int, slack_ms: float
    ) -> tuple[Candidate, ...]:
        starts_ms = request.starts_ms
        if self.context.replan:
            # A start that exceeds the slack is part of no plan that meets the SLO.
            starts_ms = (
                tuple(start_ms for start_ms in starts_ms if start_ms <= slack_ms) or starts_ms
            )
        plan = self._plan(request, batch, slack_ms, starts_ms)
        if not plan.feasible and starts_ms != request.starts_ms:
            plan = self._plan(request, batch, slack_ms, request.starts_ms)
        # Answers that differ only in the figures of their completions share the first one's object.
        same = tuple((c.configuration, c.gpu_model, c.start_ms) for c in plan.candidates)
        return self._same.setdefault(same, plan.candidates)

    def _plan(
        self, request: SchedulingRequest, batch: int, slack_ms: float, starts_ms: tuple[float, ...]
    ) -> Plan:
        context = self.context
        namespace, workflow, stage = request.key
        return self._planner.plan(
            PlanRequest(
                namespace=namespace,
                workflow=workflow,
                stage=stage,
                slack_ms=slack_ms if context.replan else None,
                queued=batch,
                fleet=context.fleet,
                starts_ms=starts_ms,
                margin_ratio=context.margin_ratio,
                progress=request.progress,
                k=context.candidates,
            )
        )


class Exact(Planned):
    """One search over all remaining stages, with the whole slack."""

    name: ClassVar[str] = "exact"
    mode: ClassVar[Literal["exact", "esg"]] = "exact"


class Esg(Planned):
    """The paper's method as reconstructed: groups of stages, each with a part of the SLO."""

    name: ClassVar[str] = "esg"
    mode: ClassVar[Literal["exact", "esg"]] = "esg"
