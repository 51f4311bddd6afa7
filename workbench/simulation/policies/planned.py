"""ESG and its exact form: the live planner, asked before each run with the slack that is left.

Source: "ESG: Pipeline-Conscious Efficient Scheduling of DNN Workflows on Serverless Platforms with
Shareable GPUs", Hui et al., HPDC 2024 (arXiv 2404.16812), from its abstract and summaries; no
public code of it is known to us. docs/algorithm.md tells which part of the search is the paper's.

The rule. The SLO is split among groups of stages by dominators and average normalised lengths.
Before each run the stages left of the group are searched with the time left of its part, and the K
cheapest first configurations are tried in order: on the node of the predecessor, where the function
is warm, from its home node on. After three misses the minimum configuration is forced. `exact` is
the same with one search over all stages left and the whole slack.

Re-derived: the search itself, where the summaries leave it open, and the split over workflows that
are not series-parallel. Where this departs:

- A queue is looked at when something has changed, not round after round; so misses count only 100
  ms apart (`scheduler.dispatch.retries`).
- Plans keep the scenario's margin, and a lost SLO is served by its rules: the paper tells neither.
- The slack is rounded down, so that answers can be kept (`Planned`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from scheduler.model.plan import Candidate, Plan
from scheduler.search.planner import Planner, PlanRequest
from workbench.simulation.configurations import batches_filled
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest

Answers = dict[tuple[int, int, tuple[float, ...]], tuple[Candidate, ...]]

STEPS_MIN = 500  # in an SLO: what rounding a slack takes of it is at most one of them
_KEPT_MAX = 65_536  # answers a queue


class Planned(Policy):
    """Asks the planner with the slack rounded down to whole steps, and keeps its answers.

    A step is a ms, or for an SLO below `STEPS_MIN` ms the half, the quarter and so on. No plan is
    made for time that is not there, and among some thousand steps the same question comes again
    and again. A queue longer than a batch that the profile has is no other question than one of
    that batch, nor is a slack below 0 another than none.
    """

    mode: ClassVar[Literal["exact", "esg"]]

    def __init__(self, world: PolicyContext) -> None:
        super().__init__(world)
        self._planner = Planner(world.catalogue, replace(world.rules, policy=self.mode))
        self._queues: dict[QueueKey, tuple[tuple[int, ...], int, Answers]] = {}
        self._same: dict[object, tuple[Candidate, ...]] = {}

    def candidates(self, question: SchedulingRequest) -> Sequence[Candidate]:
        """The K best configurations on each GPU model and for each kind of start."""
        known = self._queues.get(question.key)
        if known is None:
            known = self._queues[question.key] = self._prepared(question.key)
        batches, steps_per_ms, answers = known
        queued, left_ms = question.queued, question.slack_ms
        batch = batches[queued if queued < len(batches) else -1]
        steps = int(left_ms * steps_per_ms) if left_ms >= 0.0 else -1
        key = batch, steps, question.starts_ms
        found = answers.get(key)
        if found is None:
            if len(answers) >= _KEPT_MAX:
                answers.clear()
                self._same.clear()
            found = answers[key] = self._planned(question, batch, steps / steps_per_ms)
        return found

    def _prepared(self, key: QueueKey) -> tuple[tuple[int, ...], int, Answers]:
        slo_ms = self.world.catalogue.workflow(*key[:2]).spec.slo.latency_ms
        steps_per_ms = 1
        while slo_ms * steps_per_ms < STEPS_MIN:
            steps_per_ms *= 2
        return batches_filled(self.world.profile(key)), steps_per_ms, {}

    def _planned(
        self, question: SchedulingRequest, batch: int, slack_ms: float
    ) -> tuple[Candidate, ...]:
        starts_ms = question.starts_ms
        if self.world.replan:
            # A start that takes longer than there is time is no part of a plan that keeps the SLO.
            starts_ms = tuple(each for each in starts_ms if each <= slack_ms) or starts_ms
        plan = self._plan(question, batch, slack_ms, starts_ms)
        if not plan.feasible and starts_ms != question.starts_ms:
            plan = self._plan(question, batch, slack_ms, question.starts_ms)
        # Of answers that differ in the completions' figures alone one is kept: those of the first.
        same = tuple((c.configuration, c.gpu_model, c.start_ms) for c in plan.candidates)
        return self._same.setdefault(same, plan.candidates)

    def _plan(
        self, question: SchedulingRequest, batch: int, slack_ms: float, starts_ms: tuple[float, ...]
    ) -> Plan:
        world = self.world
        namespace, workflow, stage = question.key
        return self._planner.plan(
            PlanRequest(
                namespace=namespace,
                workflow=workflow,
                stage=stage,
                slack_ms=slack_ms if world.replan else None,
                queued=batch,
                gpu_models=world.gpu_models,
                starts_ms=starts_ms,
                margin_ratio=world.margin_ratio,
                k=world.candidates,
            )
        )


class Exact(Planned):
    """One search over all stages that are left, with the whole slack."""

    name: ClassVar[str] = "exact"
    mode: ClassVar[Literal["exact", "esg"]] = "exact"


class Esg(Planned):
    """The paper's way, as reconstructed: groups of stages, each with a part of the SLO."""

    name: ClassVar[str] = "esg"
    mode: ClassVar[Literal["exact", "esg"]] = "esg"
