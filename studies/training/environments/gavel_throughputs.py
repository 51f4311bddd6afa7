"""Measured throughput of job types, alone and in pairs on one GPU, in the JSON form of Gavel."""

import json
from ast import literal_eval
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.model.message_text import reason_of
from workbench.files.csv_table import file_error

THROUGHPUTS_FILE = Path("throughput/gavel/simulation_throughputs.json")

JobKind = tuple[str, int]
"""Job type and number of GPUs."""


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Steps per second of a job type on one GPU model.

    Attributes:
        alone_rps: throughput without a neighbour; 0: memory is too small.
        pairs: own throughput and the neighbour's, by neighbour; both 0: memory is too small.
    """

    alone_rps: float
    pairs: Mapping[JobKind, tuple[float, float]]


def read_throughputs(
    file: Path, models: Iterable[str] = ()
) -> dict[str, dict[JobKind, Throughputs]]:
    """Return throughputs by GPU model and kind of job.

    Args:
        file: path of the JSON file.
        models: GPU models that must be there.

    Raises:
        DocumentError: the file cannot be read, or an entry is wrong; names file and entry.
    """
    try:
        tables = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise file_error(file, f"cannot be read: {reason_of(error)}") from None
    if not isinstance(tables, dict):
        raise file_error(file, "is no JSON object of GPU models")
    missing = sorted(set(models) - tables.keys())
    if missing:
        raise file_error(file, f"has no GPU model {', '.join(missing)}")
    return {
        model: {
            _kind(file, model, key): _throughputs(file, f"{model}: {key}", entry)
            for key, entry in _object(file, model, table).items()
        }
        for model, table in tables.items()
    }


def _throughputs(file: Path, where: str, entry: Any) -> Throughputs:
    entry = _object(file, where, entry)
    alone: Any = entry.get("null")
    if not _is_throughput(alone):
        raise file_error(file, f"{where}: null: {alone!r} is no throughput")
    pairs = {}
    for key, pair in entry.items():
        if key == "null":
            continue
        if not (isinstance(pair, list) and len(pair) == 2 and all(map(_is_throughput, pair))):  # noqa: PLR2004
            raise file_error(file, f"{where}: {key}: {pair!r} is no pair of throughputs")
        pairs[_kind(file, where, key)] = (float(pair[0]), float(pair[1]))
    return Throughputs(float(alone), pairs)


def _object(file: Path, where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise file_error(file, f"{where}: is no JSON object")
    return value


def _is_throughput(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")


def _kind(file: Path, where: str, text: str) -> JobKind:
    """Parse ``('ResNet-18 (batch size 16)', 1)``."""
    try:
        name, gpus = literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        name, gpus = None, None
    if not (isinstance(name, str) and isinstance(gpus, int)):
        raise file_error(file, f"{where}: {text} is no pair of job type and GPUs")
    return name, gpus
