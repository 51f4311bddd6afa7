"""``esg colocate``: training in the share that inference leaves, and docs/colocation.md."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.status import Status

from scheduler.model.catalogue import Catalogue
from studies.colocation.study import (
    HIT_LOSS_MAX,
    INTERFERENCE_RATIO,
    NO_TRAINING,
    SHARES,
    StudyRow,
    StudySize,
    study,
)
from studies.page import made_by, markdown_table, repeated, update_document
from workbench.commands.simulate.jobs import documents_of
from workbench.simulation.scenario import Scenario

_HEAD = (
    "setting",
    "",
    "nodes for inference",
    "in SLO, %",
    "p99 / SLO",
    "inference holds",
    "training holds",
    "of it useful",
    "free",
    "evictions",
)


def study_colocation(document: Path, size: StudySize) -> None:
    """Run the experiment and update the document."""
    catalogue = Catalogue.of(documents_of(None))
    with Status("", console=Console(stderr=True)) as status:
        rows = list(study(catalogue, size, status.update))
    update_document(document, colocation_blocks(rows, size))


def colocation_blocks(rows: Sequence[StudyRow], size: StudySize) -> Mapping[str, str]:
    """Render the generated parts of the document by name."""
    return {"how": _how(size), "results": markdown_table(_HEAD, map(_cells, rows))}


def _how(size: StudySize) -> str:
    scenario, settings = Scenario(), repeated("--setting", size.settings)
    return (
        f"{made_by(f'esg colocate --minutes {size.minutes:g}{settings}')}: "
        f"{size.minutes:g} simulated minutes of arrivals a run, seed {size.seed}, "
        f"{scenario.nodes} nodes of {scenario.gpus_per_node} GPU and {scenario.cpus} vCPU. "
        f"Profiles are **generated**. Neighbours slow a run by up to "
        f"{100 * INTERFERENCE_RATIO:g} % (`interference_ratio`), in proportion to what they hold. "
        f"A worker has {NO_TRAINING.cpus} vCPU and {NO_TRAINING.memory_mib:,} MiB, one of the "
        f"shares {SHARES[-1]}, {SHARES[-2]}, … {SHARES[0]} %, and makes its first step "
        f"{NO_TRAINING.restart_s:g} s after its start; with its share it loses the work since the "
        f"last checkpoint ({NO_TRAINING.checkpoint_s:g} s). It frees its share for a pod in "
        f"{NO_TRAINING.release_ms / 1000:g} s. GPU hours are those of an hour.\n"
        "\n"
        "*Split cluster*: the fewest nodes on which inference alone loses at most "
        f"{100 * HIT_LOSS_MAX:g} points of its hit rate; the others train whole GPUs.\n"
    )


def _cells(row: StudyRow) -> Iterable[str]:
    inference, training = row.result.inference, row.result.training
    hours = training.hours or 1.0
    gpu_hours = (
        training.inference_gpu_h,
        training.held_gpu_h,
        training.useful_gpu_h,
        training.free_gpu_h,
    )
    return [
        row.setting,
        row.case,
        f"{row.nodes}",
        f"{100 * inference.hit_ratio:.1f}",
        f"{inference.latency.quantile(0.99):.2f}",
        *(f"{value / hours:.2f}" for value in gpu_hours),
        f"{training.evictions / hours:,.0f}",
    ]
