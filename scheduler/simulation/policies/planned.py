"""ESG and its exact form: the live planner, asked before each run with the slack that is left."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from scheduler.model.plan import Candidate, Plan
from scheduler.search.planner import Planner, PlanRequest
from scheduler.simulation.policy import Policy, Question, QueueKey, World

Answers = dict[tuple[int, int, tuple[float, ...]], tuple[Candidate, ...]]


class Planned(Policy):
    """Asks the planner in whole ms of slack, rounded down, and keeps its answers.

    No plan is made for time that is not there, and among some thousand whole ms the same question
    comes again and again. A queue longer than a batch that the profile has is no other question
    than one of that batch, nor is a slack below 0 another than none.
    """

    mode: ClassVar[Literal["exact", "esg"]]

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._planner = Planner(world.catalogue, replace(world.rules, policy=self.mode))
        self._queues: dict[QueueKey, tuple[list[int], Answers]] = {}
        self._same: dict[object, tuple[Candidate, ...]] = {}

    def candidates(self, question: Question) -> Sequence[Candidate]:
        """The K best configurations on each GPU model and for each kind of start."""
        known = self._queues.get(question.key)
        if known is None:
            known = self._queues[question.key] = (self._batches(question.key), {})
        batches, answers = known
        queued, left_ms = question.queued, question.slack_ms
        batch = batches[queued if queued < len(batches) else -1]
        slack_ms = int(left_ms) if left_ms >= 0.0 else -1
        key = batch, slack_ms, question.starts_ms
        found = answers.get(key)
        if found is None:
            found = answers[key] = self._planned(question, batch, float(slack_ms))
        return found

    def _planned(self, question: Question, batch: int, slack_ms: float) -> tuple[Candidate, ...]:
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
        self, question: Question, batch: int, slack_ms: float, starts_ms: tuple[float, ...]
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

    def _batches(self, key: QueueKey) -> list[int]:
        """By number of jobs that wait: the largest batch that is profiled and no larger."""
        gpus = self.world.profile(key).spec.gpus
        profiled = sorted({c.batch for gpu in gpus for c in gpu.configurations})
        return [
            profiled[max(bisect_right(profiled, queued) - 1, 0)]
            for queued in range(profiled[-1] + 1)
        ]


class Exact(Planned):
    """One search over all stages that are left, with the whole slack."""

    name: ClassVar[str] = "exact"
    mode: ClassVar[Literal["exact", "esg"]] = "exact"


class Esg(Planned):
    """The paper's way, as reconstructed: groups of stages, each with a part of the SLO."""

    name: ClassVar[str] = "esg"
    mode: ClassVar[Literal["exact", "esg"]] = "esg"
