"""``esg calibrate``: a gateway's log against profiles and simulator, and what a change would do."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.failure import failing_on
from scheduler.cli.gateway_documents import GatewayReadError, read_documents
from scheduler.gateway.serving.call_log import BATCH_ENDED, CALL_ENDED, CALLS_MAX
from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.document_reader import DocumentError
from workbench.commands.simulate.scenario import read_scenario
from workbench.commands.wide_table import print_rows, wide_table
from workbench.reports.numbers import dollars_per_1000
from workbench.simulation.calibration import (
    CONFIDENCE,
    Calibration,
    CallOutcome,
    StageCalibration,
    calibrate,
    replay,
)
from workbench.simulation.errors import RunError, UnknownPolicyError
from workbench.simulation.gateway_log import GatewayLog, parse_log, read_log
from workbench.simulation.scenario import ScenarioError

_NAMES = ("workflow", "stage")
_COLUMNS = (
    *_NAMES,
    "batches",
    "rows:\nmeasured",
    "simulated",
    "ms a run:\nmeasured",
    "simulated",
    "error of the\nsimulation",
    "error of\nthe profile",
    "noise",
)


def compare_log(
    log: Path | None,
    url: str,
    kubeconfig: Path | None,
    scenario: Path | None,
    profiles: Path | None,
    *,
    changes: Mapping[str, Any],
    assignments: Sequence[str],
    slo_factor: float | None,
    to_json: bool,
) -> None:
    """Print the errors of the simulation, and the outcome of the same calls after changes.

    Args:
        log: log of a gateway; None: the last calls that gateways have in memory.
        url: URL of one gateway's health port; empty: all gateways of the cluster.
        kubeconfig: kubeconfig file; None: as `scheduler.cluster.api.connect`.
        scenario: scenario file, whose first policy, setting and seed count; None: the defaults.
        profiles: file or folder with documents; None: those of the scenario.
        changes: values of keys by option; None: the option is absent.
        assignments: further changes, as ``key=value``.
        slo_factor: change of every SLO.
        to_json: print one JSON object.
    """
    change = _text_of(changes, assignments, slo_factor)
    changed: CallOutcome | None = None
    options: dict[str, Any] = {"profiles": profiles}
    with failing_on(
        DocumentError,
        GatewayReadError,
        ScenarioError,
        UnknownPolicyError,
        UnknownDocumentError,
        RunError,
    ):
        cluster = None if log is not None else _cluster(url, kubeconfig)
        experiment, documents = read_scenario(scenario, options, (), cluster=cluster)
        catalogue = Catalogue.of(documents)
        job = experiment.jobs()[0]
        if log is None:
            logged = _recent_calls(url, kubeconfig, catalogue)
        else:
            logged = read_log(log, catalogue)
        for reason, lines in logged.left_out.items():
            typer.echo(f"warning: {reason}; lines of the log left out: {lines:,}", err=True)
        if change:
            options |= changes
            experiment, _ = read_scenario(scenario, options, assignments, cluster=cluster)
            trial = experiment.jobs()[0]
            factor = trial.scenario.slo_factor * (slo_factor or 1.0)
            changed_scenario = trial.scenario.model_copy(update={"slo_factor": factor})
            changed = replay(logged, changed_scenario, catalogue, trial.policy, seed=trial.seed)
        calibration = calibrate(logged, job.scenario, catalogue, job.policy, seed=job.seed)
    if to_json:
        typer.echo(json.dumps(_as_json(calibration, change, changed)))
        return
    if changed is None:
        _print_table(calibration.stages)
    else:
        typer.echo(f"with {change}: {_line(changed)}; {_error_line(calibration)}")
    typer.echo(f"simulated as recorded: {_line(calibration.simulated)}")
    typer.echo(f"measured: {_line(calibration.measured)}")
    if changed is None:
        typer.echo(_error_line(calibration))
    typer.echo(
        f"±: binomial interval of {calibration.measured.calls:,} calls at {100 * CONFIDENCE:.0f} %"
    )


def _cluster(url: str, kubeconfig: Path | None) -> dict[str, Any] | None:
    """Read nodes and settings of a gateway; None: it does not have them."""
    by_gateway = asyncio.run(read_documents("/v1/cluster", url, kubeconfig, is_one_enough=True))
    return next(iter(by_gateway.values()), None)


def _recent_calls(url: str, kubeconfig: Path | None, catalogue: Catalogue) -> GatewayLog:
    """Read the last calls and batches of gateways, each of which has its own namespaces."""
    by_gateway = asyncio.run(read_documents("/v1/calls", url, kubeconfig))
    if not by_gateway:
        raise GatewayReadError("no gateway has /v1/calls; update it, or give its log")
    namespaces = {namespace for namespace, _ in catalogue.workflows}
    begin = _begin(by_gateway.values())
    lines = [
        json.dumps(line)
        for recorded in by_gateway.values()
        for line in recorded
        if line["namespace"] in namespaces and line["timestamp"] >= begin
    ]
    return parse_log(lines, catalogue, ", ".join(by_gateway), "send requests first")


def _begin(recorded: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """Return the time from which no gateway has forgotten a call or a batch; empty: none has."""
    ends = [
        [line["timestamp"] for line in lines if line["event"] == event]
        for lines in recorded
        for event in (CALL_ENDED, BATCH_ENDED)
    ]
    return max((times[0] for times in ends if len(times) >= CALLS_MAX), default="")


def _text_of(
    changes: Mapping[str, Any], assignments: Sequence[str], slo_factor: float | None
) -> str:
    """Name the changes; empty: there are none."""
    names = [f"{value} {option}" for option, value in changes.items() if value is not None]
    if slo_factor is not None:
        names.append(f"{slo_factor:g} times the SLO")
    return ", ".join([*names, *assignments])


def _line(outcome: CallOutcome) -> str:
    ratio, half = 100 * outcome.hit_ratio, 100 * outcome.half_interval
    ran = f"${dollars_per_1000(outcome.ran_per_1000 / 1000)}"
    if outcome.paid_per_1000 is None:
        cost = f"{ran} per 1,000 ran"
    else:
        cost = f"${dollars_per_1000(outcome.paid_per_1000 / 1000)} per 1,000, {ran} of it ran"
    return f"{ratio:.1f} % ± {half:.1f}, {cost}, p99 {outcome.p99_over_slo:.2f} of the SLO"


def _error_line(calibration: Calibration) -> str:
    points = 100 * calibration.hit_ratio_error
    ran, p99 = calibration.ran_error_ratio, calibration.p99_error_ratio
    return (
        f"error of the simulation: {points:+z.1f} points, {_text(ran, '+z.1%')} of what ran, "
        f"{_text(p99, '+z.1%')} of p99"
    )


def _as_json(calibration: Calibration, change: str, changed: CallOutcome | None) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "stages": [_stage_json(stage) for stage in calibration.stages],
        "measured": _outcome_json(calibration.measured),
        "simulated": _outcome_json(calibration.simulated),
        "hit_ratio_error": calibration.hit_ratio_error,
        "ran_error_ratio": calibration.ran_error_ratio,
        "p99_error_ratio": calibration.p99_error_ratio,
    }
    if changed is not None:
        figures |= {"change": change, "changed": _outcome_json(changed)}
    return figures


def _outcome_json(outcome: CallOutcome) -> dict[str, Any]:
    ratios = {"hit_ratio": outcome.hit_ratio, "half_interval": outcome.half_interval}
    return asdict(outcome) | ratios


def _stage_json(stage: StageCalibration) -> dict[str, Any]:
    (namespace, workflow), name = stage.stage
    figures = asdict(stage) | {"simulation_error_ratio": stage.simulation_error_ratio}
    return figures | {"namespace": namespace, "workflow": workflow, "stage": name}


def _print_table(stages: Sequence[StageCalibration]) -> None:
    table = wide_table(_COLUMNS, _NAMES)
    for stage in stages:
        (namespace, workflow), name = stage.stage
        table.add_row(
            f"{namespace}/{workflow}",
            name,
            f"{stage.batches:,}",
            f"{stage.measured_rows:.2f}",
            _text(stage.simulated_rows, ".2f"),
            f"{stage.measured_ms:.1f}",
            _text(stage.simulated_ms, ".1f"),
            _text(stage.simulation_error_ratio, "+.1%"),
            f"{stage.profile_error_ratio:+.1%}",
            f"{stage.noise_ratio:.3f}",
        )
    print_rows(table)


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
