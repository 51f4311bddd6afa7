"""Workflows of measured vision models: chains as in the ESG paper, SLOs by the paper's rule.

The table has latencies of models by batch, GPU share under MPS (``sm_pct``) and time quota; rows
with the whole quota count. It has no memory, no cold starts and no sizes of outputs: these are
assumptions, which an evaluation states.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.documents import Document, Slo, Stage, Workflow, WorkflowSpec
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS
from workbench.profiles.measured_rows import CsvLayout, label, read_rows
from workbench.profiles.measurements import ImportRequest, import_rows

PERCENT_MIN = 15  # the smallest share: of those in steps of 5, next to a seventh
_COLUMNS = ("model", "batch", "sm_pct", "quota_pct", "latency_ms")
_WHOLE_QUOTA = 100.0
_MIG_SLICES = 7  # of a whole A100

Point = tuple[int, int]  # batch, share


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Quantities that the table does not have, equal for all models.

    Attributes:
        gpu_model: NVML name of the measured GPU.
        percent_min: the smallest share that counts.
        process_mib: memory of a process with context and weights.
        request_mib: additional memory for each request of the batch.
        cold_start_ms: time from pod start to first batch.
        output_mib: size of one request's output.
    """

    gpu_model: str = "Tesla V100-SXM2-16GB"
    percent_min: int = PERCENT_MIN
    process_mib: int = 1_500
    request_mib: int = 200
    cold_start_ms: float = 2_000.0
    output_mib: float = 1.0


def vision_documents(text: str, source: str, assumptions: Assumptions) -> list[Document]:
    """Build the profiles of six models and the four workflows over them.

    The models take the places of the paper's functions by rank: both are sorted by their time at
    the minimum configuration, and the models are equally far apart in their order. An SLO is the
    sum of these times over the stages.

    Raises:
        DocumentError: the table lacks a column, or has too few complete models.
    """
    percent_min = assumptions.percent_min
    tables = _complete(_tables(text, source, percent_min), percent_min)
    by_time = sorted(tables, key=lambda model: (tables[model][1, percent_min], model))
    count = len(FUNCTIONS)
    if len(by_time) < count:
        message = f"has {len(by_time)} models with all batches and shares; it needs {count}"
        raise DocumentError([Problem(source, "the table", "", message)])
    models = [by_time[(i + 1) * len(by_time) // (count + 1)] for i in range(count)]
    roles = sorted(FUNCTIONS, key=lambda function: function.t0_ms)
    model_of = {role.name: model for role, model in zip(roles, models, strict=True)}
    request = ImportRequest(
        layout=CsvLayout(constants={"cpu": "1"}),
        gpu_model=assumptions.gpu_model,
        cold_start_ms=assumptions.cold_start_ms,
        output_mib=assumptions.output_mib,
    )
    measured = _measurements({model: tables[model] for model in models}, assumptions)
    profiles = import_rows(read_rows(measured, source, request.layout), request).profiles
    return [*profiles, *_workflows(model_of, tables, percent_min)]


def gpulet_table(text: str) -> str:
    """Bring rows of gpulet (model, batch, percent, and names between the numbers) into the form."""
    lines = [",".join(_COLUMNS)]
    for model, batch, percent, _, _, _, latency_s, _ in csv.reader(io.StringIO(text, newline="")):
        latency_ms = 1000.0 * float(latency_s)
        lines.append(f"{model},{batch},{percent},{_WHOLE_QUOTA:g},{latency_ms}")
    return "\n".join(lines) + "\n"


def parvagpu_table(files: Mapping[str, str]) -> str:
    """Bring ParvaGPU's files by model (MIG slices, batch, processes, throughput) into the form.

    A MIG slice is a seventh of the GPU. Rows of one process count, at points that every model has:
    without throughput a batch had no memory. Latencies are rounded to ms there, so the time of a
    batch is that of the throughput.
    """
    tables: dict[str, dict[Point, float]] = {}
    for model, text in files.items():
        rows = csv.DictReader(io.StringIO(text, newline=""))
        tables[model] = {
            (int(row["Batch size"]), round(100 * int(row["Mig instance"]) / _MIG_SLICES)): (
                1000.0 * int(row["Batch size"]) / float(row["Throughput"])
            )
            for row in rows
            if row["Workload Number"] == "1" and float(row["Throughput"]) > 0
        }
    points = set.intersection(*(set(table) for table in tables.values()))
    lines = [",".join(_COLUMNS)]
    lines += [
        f"{model},{batch},{percent},{_WHOLE_QUOTA:g},{table[batch, percent]}"
        for model, table in tables.items()
        for batch, percent in sorted(points)
    ]
    return "\n".join(lines) + "\n"


def _tables(text: str, source: str, percent_min: int) -> dict[str, dict[Point, float]]:
    """Return latencies by model and point; ms."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if missing := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
        message = f"lacks {', '.join(missing)}; it must have {', '.join(_COLUMNS)}"
        raise DocumentError([Problem(source, "the columns", "", message)])
    tables: defaultdict[str, dict[Point, float]] = defaultdict(dict)
    for row in reader:
        try:
            batch, percent = int(row["batch"]), int(row["sm_pct"])
            quota, latency_ms = float(row["quota_pct"]), float(row["latency_ms"])
        except (TypeError, ValueError):
            message = "batch, shares and latency must be numbers"
            place = f"line {reader.line_num}"
            raise DocumentError([Problem(source, place, "", message)]) from None
        if quota == _WHOLE_QUOTA and percent >= percent_min:
            tables[row["model"]][batch, percent] = latency_ms
    return dict(tables)


def _complete(
    tables: Mapping[str, Mapping[Point, float]], percent_min: int
) -> dict[str, Mapping[Point, float]]:
    """Return the models that were measured at all points of any."""
    points = {point for table in tables.values() for point in table}
    if (1, percent_min) not in points:
        return {}
    return {model: table for model, table in tables.items() if points == table.keys()}


def _measurements(tables: Mapping[str, Mapping[Point, float]], assumptions: Assumptions) -> str:
    """Render the measurements in the form of ``esg profiles import``."""
    lines = ["function,batch,gpu_percent,latency_ms,memory_mib"]
    for model, table in tables.items():
        for (batch, percent), latency_ms in sorted(table.items()):
            memory_mib = assumptions.process_mib + assumptions.request_mib * batch
            lines.append(f"{label(model)},{batch},{percent},{latency_ms},{memory_mib}")
    return "\n".join(lines) + "\n"


def _workflows(
    model_of: Mapping[str, str], tables: Mapping[str, Mapping[Point, float]], percent_min: int
) -> list[Workflow]:
    """Build the paper's chains over the models that take its functions' places."""
    workflows = []
    for name, functions in WORKFLOWS.items():
        models = [model_of[function] for function in functions]
        names = [label(model) for model in models]
        stages = tuple(
            Stage(name=model, function=model, after=tuple(names[max(0, i - 1) : i]))
            for i, model in enumerate(names)
        )
        slo = Slo(latency_ms=sum(tables[model][1, percent_min] for model in models))
        workflows.append(
            Workflow.model_validate(
                {
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": WorkflowSpec(slo=slo, stages=stages).model_dump(by_alias=True),
                }
            )
        )
    return workflows
