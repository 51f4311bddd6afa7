"""``esg calibrate``: a gateway's log of batches against profiles and the simulator."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.document_reader import DocumentError
from workbench.commands.simulate.scenario import read_scenario
from workbench.commands.wide_table import print_rows, wide_table
from workbench.simulation.calibration import StageCalibration, calibrate, read_batches
from workbench.simulation.errors import RunError, UnknownPolicyError
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


def compare_log(log: Path, scenario: Path | None, profiles: Path | None, *, to_json: bool) -> None:
    """Print the errors of each stage; the first policy, setting and seed of the scenario count."""
    try:
        experiment, documents = read_scenario(scenario, {"profiles": profiles}, ())
        catalogue = Catalogue.of(documents)
        job = experiment.jobs()[0]
        batches = read_batches(log, catalogue)
        stages = calibrate(batches, job.scenario, catalogue, job.policy, seed=job.seed)
    except DocumentError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(1) from None
    except (ScenarioError, UnknownPolicyError, UnknownDocumentError, RunError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    if to_json:
        typer.echo(json.dumps({"stages": [_as_json(stage) for stage in stages]}))
    else:
        _print_table(stages)


def _as_json(stage: StageCalibration) -> dict[str, Any]:
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
