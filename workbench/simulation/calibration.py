"""Calibration: what a gateway logged, held against the profiles and a simulation of its calls."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import NormalDist, fmean, pstdev

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from workbench.simulation.engine import simulate
from workbench.simulation.gateway_log import GatewayLog, LoggedBatch, StageKey
from workbench.simulation.loop import NO_OBSERVERS, Observers
from workbench.simulation.registry import policy_class
from workbench.simulation.result import Result, Span
from workbench.simulation.scenario import Scenario

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCalibration:
    """Figures of one stage; an error is a figure over the measured one, less 1.

    Attributes:
        batches: number of batches in the log.
        measured_rows, simulated_rows: mean rows of a batch.
        measured_ms, simulated_ms: mean run time of a batch; None if the simulation ran none.
        profile_error_ratio: error of the profiled run times.
        noise_ratio: standard deviation of the logarithm of measured over profiled times.
    """

    stage: StageKey
    batches: int
    measured_rows: float
    simulated_rows: float | None
    measured_ms: float
    simulated_ms: float | None
    profile_error_ratio: float
    noise_ratio: float

    @property
    def simulation_error_ratio(self) -> float | None:
        """Error of the simulated run time."""
        return None if self.simulated_ms is None else self.simulated_ms / self.measured_ms - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """Outcome of all calls of a log, measured or simulated.

    Attributes:
        hits: number of calls in time.
        p99_over_slo: 99th percentile of latency over SLO, of the calls that were answered.
        ran_per_1000: dollars per 1,000 calls for the run times of the batches.
        paid_per_1000: dollars per 1,000 calls for what was set aside; None: a log lacks it.
    """

    calls: int
    hits: int
    p99_over_slo: float
    ran_per_1000: float
    paid_per_1000: float | None

    @property
    def hit_ratio(self) -> float:
        """Ratio of the calls in time."""
        return self.hits / self.calls

    @property
    def half_interval(self) -> float:
        """Half of the width of the Wilson interval of the hit ratio, at 95 %."""
        z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        variance = self.hit_ratio * (1 - self.hit_ratio) / self.calls
        return z * sqrt(variance + (z / self.calls) ** 2 / 4) / (1 + z * z / self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Comparison of a log with a simulation: of stages, and of all calls."""

    stages: tuple[StageCalibration, ...]
    measured: CallOutcome
    simulated: CallOutcome

    @property
    def hit_ratio_error(self) -> float:
        """Simulated hit ratio less the measured one."""
        return self.simulated.hit_ratio - self.measured.hit_ratio

    @property
    def ran_error_ratio(self) -> float | None:
        """Error of the cost of what ran; None: nothing was measured."""
        return _error_ratio(self.simulated.ran_per_1000, self.measured.ran_per_1000)

    @property
    def p99_error_ratio(self) -> float | None:
        """Error of p99; None: nothing was measured."""
        return _error_ratio(self.simulated.p99_over_slo, self.measured.p99_over_slo)


def calibrate(
    logged: GatewayLog, scenario: Scenario, catalogue: Catalogue, policy: str, *, seed: int = 0
) -> Calibration:
    """Simulate the calls of a log, and compare each stage in the order of the workflows."""
    workflows = logged.arrivals().workflows
    spans: defaultdict[StageKey, list[Span]] = defaultdict(list)
    observers = Observers(
        on_span=lambda span: spans[workflows[span.workflow], span.stage].append(span)
    )
    result = _simulate(logged, scenario, catalogue, policy, seed=seed, observers=observers)
    batches: defaultdict[StageKey, list[LoggedBatch]] = defaultdict(list)
    for batch in logged.batches:
        batches[batch.stage].append(batch)
    return Calibration(
        stages=tuple(
            _compared((key, stage.name), batches[key, stage.name], spans[key, stage.name])
            for key in workflows
            for stage in catalogue.workflow(*key).spec.stages
            if (key, stage.name) in batches
        ),
        measured=_measured(logged, scenario.rules.prices),
        simulated=_outcome(result),
    )


def replay(
    logged: GatewayLog, scenario: Scenario, catalogue: Catalogue, policy: str, *, seed: int = 0
) -> CallOutcome:
    """Simulate the calls of a log."""
    return _outcome(_simulate(logged, scenario, catalogue, policy, seed=seed))


def _simulate(  # noqa: PLR0913 - what a run depends on, each by name
    logged: GatewayLog,
    scenario: Scenario,
    catalogue: Catalogue,
    policy: str,
    *,
    seed: int,
    observers: Observers = NO_OBSERVERS,
) -> Result:
    """Simulate all calls, without a warm-up: those measured are counted, and no others.

    A log that begins without pods is simulated so. The gateway then knew no rate, either.
    """
    changes: dict[str, float] = {"warmup_ms": 0.0}
    rates_rps = logged.rates_rps()
    if logged.begins_cold:
        changes["warm_containers"] = 0
        if policy_class(policy).dispatches:
            rates_rps = dict.fromkeys(rates_rps, 0.0)
    return simulate(
        scenario.model_copy(update=changes),
        catalogue,
        logged.arrivals(),
        policy,
        seed=seed,
        rates_rps=rates_rps,
        observers=observers,
    )


def _outcome(result: Result) -> CallOutcome:
    return CallOutcome(
        calls=result.requests,
        hits=result.hits,
        p99_over_slo=result.latency.quantile(0.99),
        ran_per_1000=result.ran_dollars_per_thousand,
        paid_per_1000=result.dollars_per_thousand,
    )


def _measured(logged: GatewayLog, prices: Prices) -> CallOutcome:
    ratios = [c.latency_ms / c.allowed_ms for c in logged.calls if c.result != "dropped"]
    dollars = sum(
        prices.request_cost_dollars(b.execute_ms, b.cpu, b.gpu_percent, b.rows, b.gpu_model)
        * (b.rows - b.single_stage_rows)  # calls of one stage are not among the calls
        for b in logged.batches
    )
    return CallOutcome(
        calls=len(logged.calls),
        hits=sum(call.result == "hit" for call in logged.calls),
        p99_over_slo=float(np.quantile(ratios, 0.99)) if ratios else 0.0,
        ran_per_1000=1000 * dollars / len(logged.calls),
        paid_per_1000=None,
    )


def _error_ratio(simulated: float, measured: float) -> float | None:
    return simulated / measured - 1 if measured else None


def _compared(
    stage: StageKey, batches: Sequence[LoggedBatch], spans: Sequence[Span]
) -> StageCalibration:
    measured_ms = fmean(batch.execute_ms for batch in batches)
    simulated_ms = [span.end_ms - span.begin_ms - span.start_ms for span in spans]
    return StageCalibration(
        stage=stage,
        batches=len(batches),
        measured_rows=fmean(batch.rows for batch in batches),
        simulated_rows=fmean(span.jobs for span in spans) if spans else None,
        measured_ms=measured_ms,
        simulated_ms=fmean(simulated_ms) if spans else None,
        profile_error_ratio=fmean(batch.profiled_ms for batch in batches) / measured_ms - 1,
        noise_ratio=pstdev(log(batch.execute_ms / batch.profiled_ms) for batch in batches),
    )
