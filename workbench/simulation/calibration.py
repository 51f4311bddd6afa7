"""Calibration: batches that a gateway ran, held against their profiles and a simulation.

The gateway logs each batch (level debug, JSON): its stage, rows, waits, run time, and the time of
its profile. The requests of that log are simulated again, and each stage's figures compared.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from math import isfinite, log
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import quoted
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers
from workbench.simulation.result import Span
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.arrivals import UNLIMITED, ChunkedArrivals, WorkflowKey

EVENT = "batch ended"  # of the gateway's log
_MS_PER_S = 1000.0
_SPAN_MIN_MS = 1000.0  # too short for a rate

StageKey = tuple[WorkflowKey, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedBatch:
    """One batch of the log.

    Attributes:
        stage: workflow and stage of the batch.
        end_ms: end of the batch, in ms since the epoch.
        execute_ms, profiled_ms: measured run time, and run time by the profile.
        waits_ms: waiting time of each call of the batch in the stage's queue.
    """

    stage: StageKey
    end_ms: float
    rows: int
    execute_ms: float
    profiled_ms: float
    waits_ms: tuple[float, ...]


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


def read_batches(file: Path, catalogue: Catalogue) -> list[LoggedBatch]:
    """Read the batches of a log; other lines are skipped.

    Raises:
        DocumentError: a line of a batch is wrong, or there is none.
    """
    batches = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError([Problem(str(file), "the file", "", str(error))]) from None
    for number, line in enumerate(lines, start=1):
        if EVENT in line:
            try:
                fields = json.loads(line)
                if isinstance(fields, dict) and fields.get("event") == EVENT:
                    batches.append(_batch(fields, catalogue))
            except (KeyError, TypeError, ValueError) as error:
                reason = f"has no {error}" if isinstance(error, KeyError) else str(error)
                message = f"is no batch of the gateway's log: {reason}"
                raise DocumentError([Problem(str(file), f"line {number}", "", message)]) from None
    if not batches:
        message = (
            f"has no line with the event {EVENT!r}; set ESG_LOG_LEVEL=debug and ESG_LOG_JSON=true "
            "for the gateway"
        )
        raise DocumentError([Problem(str(file), "the file", "", message)])
    return batches


def calibrate(
    batches: Sequence[LoggedBatch],
    scenario: Scenario,
    catalogue: Catalogue,
    policy: str,
    *,
    seed: int = 0,
) -> list[StageCalibration]:
    """Simulate the requests of a log, and compare each stage in the order of the workflows."""
    arrivals, rates_rps = _arrivals(batches, catalogue)
    spans: defaultdict[StageKey, list[Span]] = defaultdict(list)
    simulate(
        scenario,
        catalogue,
        arrivals,
        policy,
        seed=seed,
        rates_rps=rates_rps,
        observers=Observers(
            on_span=lambda span: spans[arrivals.workflows[span.workflow], span.stage].append(span)
        ),
    )
    logged: defaultdict[StageKey, list[LoggedBatch]] = defaultdict(list)
    for batch in batches:
        logged[batch.stage].append(batch)
    return [
        _compared((key, stage.name), logged[key, stage.name], spans[key, stage.name])
        for key in arrivals.workflows
        for stage in catalogue.workflow(*key).spec.stages
        if (key, stage.name) in logged
    ]


def _batch(fields: dict[str, Any], catalogue: Catalogue) -> LoggedBatch:
    namespace, workflow, stage = (str(fields[n]) for n in ("namespace", "workflow", "stage"))
    document = catalogue.workflows.get((namespace, workflow))
    if document is None or document.stage(stage) is None:
        raise ValueError(f"{quoted(f'{namespace}/{workflow}')} has no stage {quoted(stage)}")
    batch = LoggedBatch(
        stage=((namespace, workflow), stage),
        end_ms=_MS_PER_S * datetime.fromisoformat(fields["timestamp"]).timestamp(),
        rows=int(fields["rows"]),
        execute_ms=_MS_PER_S * float(fields["execute_s"]),
        profiled_ms=_MS_PER_S * float(fields["profiled_s"]),
        waits_ms=tuple(_MS_PER_S * float(wait_s) for wait_s in fields["queue_s"]),
    )
    for name in ("execute_ms", "profiled_ms"):
        duration_ms = getattr(batch, name)
        if not (isfinite(duration_ms) and duration_ms > 0):
            raise ValueError(f"{name} is {duration_ms}, which is no duration")
    return batch


def _arrivals(
    batches: Iterable[LoggedBatch], catalogue: Catalogue
) -> tuple[ChunkedArrivals, dict[WorkflowKey, float]]:
    """Return the calls of the workflows' first stages, and each workflow's rate."""
    times_ms: defaultdict[WorkflowKey, list[float]] = defaultdict(list)
    for batch in batches:
        key, stage = batch.stage
        if stage == next(s.name for s in catalogue.workflow(*key).spec.stages if not s.after):
            begin_ms = batch.end_ms - batch.execute_ms
            times_ms[key] += (begin_ms - wait_ms for wait_ms in batch.waits_ms)
    keys = tuple(sorted(times_ms))
    if not keys:
        message = "has no batch of a first stage, so that no arrival is known"
        raise DocumentError([Problem("the log", "all lines", "", message)])
    all_ms = np.array(list(chain.from_iterable(times_ms[key] for key in keys)))
    numbers = np.repeat(np.arange(len(keys), dtype=np.int32), [len(times_ms[k]) for k in keys])
    order = np.argsort(all_ms, kind="stable")
    all_ms, numbers = all_ms[order] - all_ms.min(), numbers[order]
    span_s = max(float(all_ms[-1]), _SPAN_MIN_MS) / _MS_PER_S
    rates_rps = {key: len(times_ms[key]) / span_s for key in keys}
    arrivals = ChunkedArrivals(
        workflows=keys, blocks=lambda: iter([(all_ms, numbers)]), extent=UNLIMITED
    )
    return arrivals, rates_rps


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
