"""Files of Triton's perf_analyzer, Model Analyzer and GenAI-Perf as rows of measurements.

A profile has the time of one batch that runs alone, so only measurements with one request at a time
count. perf_analyzer writes µs, and no batch. Model Analyzer writes the unit into the column's name,
and the GPU's memory into a file of its own. GenAI-Perf writes a table of statistics, whose rows are
metrics, and the throughput instead of the number of requests at a time.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import listed, quoted
from workbench.profiles.latency_units import Unit, to_ms, unit_of
from workbench.profiles.measured_numbers import number
from workbench.profiles.measured_rows import (
    LATENCIES,
    REQUIRED,
    CsvLayout,
    MeasuredRows,
    Row,
    csv_lines,
    wrong_fields,
)

Tool = Literal["perf-analyzer", "model-analyzer", "genai-perf"]
_ALONE = "1"
_LITTLE_RATIO = 0.25  # by which latency times throughput may differ from the batch, or one request
_REQUESTS = "Request Throughput"
_THROUGHPUTS = ("Inferences/Second", "Throughput (infer/sec)")
_JOIN = ("Model", "Batch", "Concurrency", "Model Config Path")
_COLUMNS: dict[Tool, dict[str, tuple[str, ...]]] = {
    "perf-analyzer": {
        "latency_ms": ("Avg latency", "p50 latency"),
        "p95_ms": ("p95 latency",),
    },
    "model-analyzer": {
        "function": ("Model",),
        "batch": ("Batch",),
        "latency_ms": ("Avg Latency", "p50 Latency"),
        "p95_ms": ("p95 Latency",),
    },
    "genai-perf": {"latency_ms": ("avg",), "p95_ms": ("p95",)},
}
_REMEDIES: dict[Tool, str] = {
    "perf-analyzer": "run perf_analyzer with --concurrency-range 1 --percentile 95 and -f FILE",
    "model-analyzer": "add perf_latency_avg and perf_latency_p95 to inference_output_fields",
    "genai-perf": "give profile_export_genai_perf.csv",
}
_METRIC = re.compile(r"Request Latency(?P<unit> \(\w+\))?")
_MEMORY = "GPU Memory Usage (MB)"
_MEMORY_FILE = "metrics-model-gpu.csv"


@dataclass(frozen=True, slots=True)
class ExportFile:
    """A file of a tool.

    Attributes:
        text: content of the file.
        source: path of the file.
        batch: batch that it was measured with; None: in the file, or in ``--set batch``.
    """

    text: str
    source: str
    batch: int | None = None


def read_exports(
    tool: Tool,
    files: Sequence[ExportFile],
    constants: Mapping[str, str],
    *,
    unit: Unit | None = None,
    gpu_file: ExportFile | None = None,
) -> MeasuredRows:
    """Read the files of a tool.

    Args:
        tool: tool that wrote them.
        files: one file or more.
        constants: text of fields that no file has, for all rows.
        unit: unit of the latencies; None: as the tool writes it.
        gpu_file: Model Analyzer's file with the memory of the GPU.

    Raises:
        DocumentError: a file lacks what a profile needs.
    """
    source = files[0].source if len(files) == 1 else f"{len(files)} files"
    memory = {} if gpu_file is None else _memory(gpu_file)
    rows: list[Row] = []
    all_columns: dict[str, str] = {}
    for file in files:
        header, table = _table(tool, file)
        columns = _columns(tool, header, file)
        all_columns |= columns
        _check_constants(constants, columns, file)
        prefix = "" if len(files) == 1 else f"{file.source}, "
        for place, cells in table:
            if cells.get("Concurrency", _ALONE) != _ALONE:
                continue
            texts = {field: cells[column] for field, column in columns.items()}
            for field in LATENCIES:
                if field in columns:
                    texts[field] = to_ms(
                        texts[field], _unit(tool, columns[field], cells, unit, file)
                    )
            if file.batch is not None:
                texts["batch"] = str(file.batch)
            key = tuple(cells.get(name, "") for name in _JOIN)
            if key in memory:
                texts["memory_mib"] = str(memory[key])
            texts = {**constants, **texts}
            _check_fields(texts, file, place)
            _check_throughput(cells, texts, file, place)
            rows.append(Row(prefix + place, texts))
    if not rows:
        message = f"has no row with concurrency {_ALONE}; {_REMEDIES[tool]}"
        raise DocumentError([Problem(source, "the file", "", message)])
    names = {"batch": "Batch", "memory_mib": _MEMORY} | all_columns
    return MeasuredRows(source, tuple(rows), names, constants)


def _table(tool: Tool, file: ExportFile) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """Return the columns, and the place and cells of each row."""
    lines = csv_lines(file.text, file.source)
    per_s = next(
        (cells[1] for _, cells in lines if cells[0].startswith(_REQUESTS) and cells[1:]), ""
    )
    if tool == "genai-perf":
        lines = [
            (place, [cell.replace(",", "") for cell in cells])  # separators of thousands
            for place, cells in lines
            if cells[0] == "Metric" or _METRIC.fullmatch(cells[0])
        ][:2]
    if not lines:
        raise DocumentError([Problem(file.source, "the file", "", f"is empty; {_REMEDIES[tool]}")])
    header = lines[0][1]
    rows = []
    for place, cells in lines[1:]:
        if len(cells) != len(header):
            message = f"has {len(cells)} values for {len(header)} columns"
            raise DocumentError([Problem(file.source, place, "", message)])
        rows.append((place, dict(zip(header, cells, strict=True)) | {_REQUESTS: per_s}))
    return header, rows


def _columns(tool: Tool, header: Sequence[str], file: ExportFile) -> dict[str, str]:
    """Return the column of each field; a name of this module may be followed by a unit."""
    plain = {re.sub(r" \(\w+\)$", "", name): name for name in reversed(header)}
    columns = {
        field: next(plain[name] for name in names if name in plain)
        for field, names in _COLUMNS[tool].items()
        if any(name in plain for name in names)
    }
    missing = _COLUMNS[tool].keys() - columns.keys() - {"p95_ms"}
    if missing or (tool != "genai-perf" and "Concurrency" not in header):
        message = (
            f"is no file of {tool}, or lacks the mean latency or the concurrency: it has "
            f"{listed([quoted(name) for name in header])}; {_REMEDIES[tool]}"
        )
        raise DocumentError([Problem(file.source, "the columns", "", message)])
    return columns


def _unit(
    tool: Tool, column: str, cells: Mapping[str, str], unit: Unit | None, file: ExportFile
) -> Unit:
    name = cells["Metric"] if tool == "genai-perf" else column
    known = unit or ("us" if tool == "perf-analyzer" else unit_of(name))
    if known is None:
        message = f"{quoted(name)} names no unit; give --unit ns, us, ms or s"
        raise DocumentError([Problem(file.source, "the columns", "", message)])
    return known


def _check_constants(
    constants: Mapping[str, str], columns: Mapping[str, str], file: ExportFile
) -> None:
    """Refuse values that the file has, or that no profile has."""
    problems = [
        Problem(file.source, place, "", message)
        for place, message in wrong_fields(columns, CsvLayout(constants=constants))
    ]
    if problems:
        raise DocumentError(problems)


def _check_fields(texts: Mapping[str, str], file: ExportFile, place: str) -> None:
    absent = [name for name in REQUIRED if name not in texts]
    if absent:
        remedies = " ".join(f"--set {name}=VALUE" for name in absent)
        message = f"has no {', '.join(absent)}; write {remedies}"
        raise DocumentError([Problem(file.source, place, "", message)])


def _check_throughput(
    cells: Mapping[str, str], texts: Mapping[str, str], file: ExportFile, place: str
) -> None:
    """Compare the batch with what one request at a time answers in its latency."""
    latency_ms, batch = number(texts["latency_ms"]), number(texts["batch"])
    requests_per_s = number(cells.get(_REQUESTS, "").replace(",", ""))
    at_a_time = (requests_per_s or 0.0) * (latency_ms or 0.0) / 1000
    if at_a_time > 1 + _LITTLE_RATIO:
        message = (
            f"{requests_per_s:,.6g} requests per second at {latency_ms:,.6g} ms are "
            f"{at_a_time:,.3g} at a time; run genai-perf with --concurrency 1"
        )
        raise DocumentError([Problem(file.source, place, f"column {_REQUESTS}", message)])
    for column in _THROUGHPUTS:
        per_s = number(cells.get(column, ""))
        if per_s is None or not latency_ms or not batch:
            continue
        rows = per_s * latency_ms / 1000
        if abs(rows / batch - 1) > _LITTLE_RATIO:
            message = (
                f"{per_s:,.6g} inferences per second at {latency_ms:,.6g} ms are a batch of "
                f"{rows:,.3g}, not of {batch:g}; correct the batch"
            )
            raise DocumentError([Problem(file.source, place, f"column {column}", message)])


def _memory(file: ExportFile) -> dict[tuple[str, ...], int]:
    """Return the memory in MiB, by the values of the columns that both files have."""
    header, rows = _table("model-analyzer", file)
    absent = [name for name in (*_JOIN, _MEMORY) if name not in header]
    if absent:
        message = f"has no column {listed([quoted(name) for name in absent])}; give {_MEMORY_FILE}"
        raise DocumentError([Problem(file.source, "the columns", "", message)])
    memory: dict[tuple[str, ...], int] = {}
    for place, cells in rows:
        used = number(cells[_MEMORY])
        key = tuple(cells[name] for name in _JOIN)
        if used is None or key in memory:
            message = (
                f"{_MEMORY} is {quoted(cells[_MEMORY])}"
                if used is None
                else "a second GPU for one measurement; measure on one"
            )
            raise DocumentError([Problem(file.source, place, "", message)])
        memory[key] = ceil(used)
    return memory
