"""Measurements to FunctionProfiles: the text of a CSV in, documents and problems out.

What was measured stays as it is, noise included: no value is changed, and a larger share that was
slower is slower in the document. Only what no plan needs is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import PurePath
from typing import Any, cast

import yaml
from pydantic import TypeAdapter, ValidationError

from scheduler.model.documents import FunctionProfile, Name, ProfiledConfiguration, to_manifest
from scheduler.model.dominance import point, without_dominated
from scheduler.model.names import API_VERSION, GROUP
from scheduler.model.quoting import quoted
from scheduler.model.reading import DocumentError, Problem, parse_document
from workbench.profiles.measured_rows import (
    REQUIRED,
    MeasuredRows,
    Row,
    Selection,
    label,
    number,
    read_rows,
)

try:  # the C emitter is five times faster; PyYAML may have been built without it
    from yaml import CSafeDumper as _Dumper
except ImportError:  # pragma: no cover
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]

ANNOTATION_IMPORTED_FROM = f"{GROUP}/imported-from"

_MEASURED = ProfiledConfiguration.model_fields
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_WIDTH = 200  # characters of a line of YAML: a configuration needs one


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Which rows to import, and what no row says.

    Attributes:
        selection: the rows, and where their fields are.
        gpu_model: NVML's name of the GPU that was measured on.
        cold_start_ms: of each function, from pod start to first batch; None: not known.
        output_mib: of one request of each function; None: not known.
        keep_dominated: keep what no plan needs, too.
    """

    selection: Selection
    gpu_model: str
    cold_start_ms: float | None = None
    output_mib: float | None = None
    keep_dominated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The profiles that a CSV gave, by name, and what became of its rows.

    Attributes:
        profiles: each with its configurations by batch, vCPUs and share.
        file_name: of the CSV, without its folder.
        rows: how many the CSV has.
        taken: how many of them were asked for.
        identical: how many of those equal an earlier one.
        dominated: how many of those were left out, as no plan needs them.
        renamed: functions whose name is no RFC 1123 label, to the name that they have now.
    """

    profiles: tuple[FunctionProfile, ...]
    file_name: str
    rows: int
    taken: int
    identical: int
    dominated: int
    renamed: Mapping[str, str]

    def summary(self) -> str:
        """The counts, in one line."""
        configurations = self.taken - self.identical - self.dominated
        functions = len(self.profiles)
        return (
            f"{self.taken:,} of {self.rows:,} rows taken, less {self.identical:,} identical and "
            f"{self.dominated:,} dominated: {configurations:,} "
            f"configuration{'s' * (configurations != 1)} of {functions:,} "
            f"function{'s' * (functions != 1)}"
        )

    def as_yaml(self) -> str:
        """The documents, below a comment with the counts."""
        comment = f"# Imported from {quoted(self.file_name)} by esg profiles import.\n"
        return f"{comment}# {self.summary()}.\n" + yaml.dump_all(
            [to_manifest(profile) for profile in self.profiles],
            Dumper=_Dumper,
            default_flow_style=None,
            sort_keys=False,
            allow_unicode=True,
            width=_WIDTH,
        )


def import_measurements(text: str, source: str, request: ImportRequest) -> Imported:
    """The profiles that the text of a CSV holds; ``source`` is its path.

    Raises:
        DocumentError: the CSV or the request is wrong, or they do not fit each other.
    """
    read = read_rows(text, source, request.selection)
    problems: list[Problem] = []
    names = _names(read, problems)
    measured, identical = _configurations(read, problems)
    if problems:
        raise DocumentError(dict.fromkeys(problems))  # a wrong constant is one problem, not many
    kept = {
        names[function]: sorted(configurations, key=point)
        if request.keep_dominated
        else without_dominated(configurations)
        for function, configurations in measured.items()
    }
    return Imported(
        profiles=tuple(_profile(name, kept[name], source, request) for name in sorted(kept)),
        file_name=_file_name(source),
        rows=read.total,
        taken=len(read.rows),
        identical=identical,
        dominated=len(read.rows) - identical - sum(map(len, kept.values())),
        renamed={function: name for function, name in names.items() if function != name},
    )


def _names(read: MeasuredRows, problems: list[Problem]) -> dict[str, str]:
    """The name of each function's document, by the function's name in the CSV."""
    names: dict[str, str] = {}
    first: dict[str, Row] = {}  # by the name of the document
    for row in read.rows:
        if row.function in names:
            continue
        name = names[row.function] = label(row.function)
        other = first.setdefault(name, row)
        try:
            _NAME.validate_python(name)
        except ValidationError as error:
            message = f"{quoted(row.function)} gives no name: {error.errors()[0]['msg']}"
            problems.append(read.problem(row.place, "function", message))
            continue
        if other is not row:
            message = (
                f"{quoted(row.function)} would be named {name}, as {quoted(other.function)} of "
                f"{other.place} is; rename one, or choose with --only or --where"
            )
            problems.append(read.problem(row.place, "function", message))
    return names


def _configurations(
    read: MeasuredRows, problems: list[Problem]
) -> tuple[dict[str, list[ProfiledConfiguration]], int]:
    """What was measured of each function, and how many rows equal an earlier one."""
    shares = [number(row.texts["gpu_percent"]) for row in read.rows]
    ratios = all(share is not None and 0 < share <= 1 for share in shares)
    if ratios:
        message = "no row has more than 1, so these look like ratios; write 25 for a quarter"
        problems.append(read.problem("all rows", "gpu_percent", message))
    measured: dict[str, list[ProfiledConfiguration]] = {}
    seen: dict[tuple[str, int, int, int], tuple[Row, ProfiledConfiguration]] = {}
    identical = 0
    for row in read.rows:
        try:
            configuration = ProfiledConfiguration.model_validate(_values(row))
        except ValidationError as error:
            wrong = {str(d["loc"][0]): d["msg"] for d in error.errors(include_url=False)}
            if ratios:
                wrong.pop("gpu_percent", None)  # that is told already
            problems += [
                read.problem(row.place, name, f"{message} (given: {quoted(row.texts[name])})")
                for name, message in wrong.items()
            ]
            continue
        key = (row.function, *point(configuration))
        first, earlier = seen.setdefault(key, (row, configuration))
        if first is row:
            measured.setdefault(row.function, []).append(configuration)
        elif earlier == configuration:
            identical += 1
        else:
            batch, cpu, gpu_percent = point(configuration)
            message = (
                f"batch {batch}, cpu {cpu}, gpu_percent {gpu_percent} of {quoted(row.function)} is "
                f"on {first.place} too, with other values; keep one, or choose with --where"
            )
            problems.append(Problem(read.source, row.place, "", message))
    return measured, identical


def _values(row: Row) -> dict[str, Any]:
    """The measured fields, as numbers; text that is none stays text, which a document refuses."""
    values: dict[str, Any] = {}
    for name in _MEASURED:
        text = row.texts.get(name, "")
        value = number(text)
        if value is not None:
            values[name] = int(value) if value.is_integer() else value
        elif text or name in REQUIRED:
            values[name] = text
    return values


def _profile(
    name: str,
    configurations: list[ProfiledConfiguration],
    source: str,
    request: ImportRequest,
) -> FunctionProfile:
    axes = zip(*map(point, configurations), strict=True)
    full = len(configurations) == prod(len(set(axis)) for axis in axes)
    known = {"coldStartMs": request.cold_start_ms, "outputMib": request.output_mib}
    gpu = {
        "model": request.gpu_model,
        **({} if full else {"sparse": True}),
        "configurations": [
            configuration.model_dump(by_alias=True, exclude_unset=True)
            for configuration in configurations
        ],
    }
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "FunctionProfile",
        "metadata": {"name": name, "annotations": {ANNOTATION_IMPORTED_FROM: _file_name(source)}},
        "spec": {
            **{key: value for key, value in known.items() if value is not None},
            "gpus": [gpu],
        },
    }
    # Of our group and kind, so it is never None.
    return cast("FunctionProfile", parse_document(manifest, source))


def _file_name(source: str) -> str:
    """Of a path; what is not UTF-8 in it is replaced, as no document could hold it."""
    return PurePath(source).name.encode(errors="replace").decode()
