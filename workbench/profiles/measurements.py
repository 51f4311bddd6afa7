"""Conversion of measurements to FunctionProfiles: CSV text in, documents and problems out.

Values stay as measured, noise included: a larger share that was slower is slower in the document.
Only dominated configurations are dropped, because no plan needs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from scheduler.model.document_fields import Name
from scheduler.model.document_reader import DocumentError, Problem, parse_document
from scheduler.model.documents import FunctionProfile, ProfiledConfiguration
from scheduler.model.message_text import quoted
from scheduler.model.names import GROUP
from workbench.profiles.dominance import point, without_dominated
from workbench.profiles.measured_numbers import number
from workbench.profiles.measured_rows import (
    REQUIRED,
    CsvLayout,
    MeasuredRows,
    Row,
    label,
)
from workbench.profiles.plausibility import implausible
from workbench.profiles.profile_documents import as_yaml, gpu_section, profile_manifest

ANNOTATION_IMPORTED_FROM = f"{GROUP}/imported-from"

_MEASURED = ProfiledConfiguration.model_fields
_NAME: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Layout of the CSV, and values that no row has.

    Attributes:
        layout: columns of the fields.
        gpu_model: name of the measured GPU by NVML.
        cold_start_ms: time from pod start to first batch, for each function; None: unknown.
        output_mib: size of the output of one request, for each function, in MiB; None: unknown.
    """

    layout: CsvLayout
    gpu_model: str
    cold_start_ms: float | None = None
    output_mib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Profiles of a CSV by name, and the counts of its rows.

    Attributes:
        profiles: profiles with their configurations by batch, vCPUs and share.
        file_name: name of the CSV, without its folder.
        rows: number of rows in the CSV.
        identical: number of rows that equal an earlier one.
        dominated: number of rows that were dropped because no plan needs them.
        renamed: new names of functions whose name is not an RFC 1123 label, by the old one.
    """

    profiles: tuple[FunctionProfile, ...]
    file_name: str
    rows: int
    identical: int
    dominated: int
    renamed: Mapping[str, str]

    def summary(self) -> str:
        """Format the counts in one line."""
        configurations = self.rows - self.identical - self.dominated
        functions = len(self.profiles)
        return (
            f"{self.rows:,} rows less {self.identical:,} identical and "
            f"{self.dominated:,} dominated: {configurations:,} "
            f"configuration{'s' * (configurations != 1)} of {functions:,} "
            f"function{'s' * (functions != 1)}"
        )

    def as_yaml(self) -> str:
        """Render the documents below a comment with the counts."""
        comment = f"Imported from {quoted(self.file_name)} by esg profiles import."
        return as_yaml(self.profiles, comment, f"{self.summary()}.")


def import_rows(read: MeasuredRows, request: ImportRequest) -> Imported:
    """Convert rows; of the request, only what no row has counts.

    Raises:
        DocumentError: a row is invalid, or its values cannot be right.
    """
    source = read.source
    problems: list[Problem] = []
    names = _names(read, problems)
    measured, identical = _configurations(read, problems)
    if problems:
        raise DocumentError(
            dict.fromkeys(problems)
        )  # an invalid constant is one problem, not one per row
    undominated = {
        names[function]: without_dominated(configurations)
        for function, configurations in measured.items()
    }
    return Imported(
        profiles=tuple(
            _profile(name, undominated[name], source, request) for name in sorted(undominated)
        ),
        file_name=_file_name(source),
        rows=len(read.rows),
        identical=identical,
        dominated=len(read.rows) - identical - sum(map(len, undominated.values())),
        renamed={function: name for function, name in names.items() if function != name},
    )


def _names(read: MeasuredRows, problems: list[Problem]) -> dict[str, str]:
    """Name the document of each function, by the function's name in the CSV."""
    names: dict[str, str] = {}
    first: dict[str, Row] = {}  # by the name of the document
    for row in read.rows:
        if row.function in names:
            continue
        name = names[row.function] = label(row.function)
        earlier = first.setdefault(name, row)
        try:
            _NAME.validate_python(name)
        except ValidationError as error:
            message = f"{quoted(row.function)} is not a valid name: {error.errors()[0]['msg']}"
            problems.append(read.problem(row.place, "function", message))
            continue
        if earlier is not row:
            message = (
                f"{quoted(row.function)} would be named {name}, like {quoted(earlier.function)} on "
                f"{earlier.place}; rename one"
            )
            problems.append(read.problem(row.place, "function", message))
    return names


def _configurations(
    read: MeasuredRows, problems: list[Problem]
) -> tuple[dict[str, list[ProfiledConfiguration]], int]:
    """Group the configurations by function, and count the rows that equal an earlier one."""
    shares = [number(row.texts["gpu_percent"]) for row in read.rows]
    ratios = all(share is not None and 0 < share <= 1 for share in shares)
    if ratios:
        message = "all values are at most 1 and look like ratios; write 25 for a quarter"
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
                wrong.pop("gpu_percent", None)  # already reported
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
                f"on {first.place} too, with different values; remove one"
            )
            problems.append(Problem(read.source, row.place, "", message))
    problems += implausible(read, seen.values())
    return measured, identical


def _values(row: Row) -> dict[str, Any]:
    """Parse the measured fields; other text stays text, which the document's validation rejects."""
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
    manifest = profile_manifest(
        name,
        [gpu_section(request.gpu_model, configurations)],
        annotations={ANNOTATION_IMPORTED_FROM: _file_name(source)},
        cold_start_ms=request.cold_start_ms,
        output_mib=request.output_mib,
    )
    # Its group and kind are known, so the result is never None.
    return cast("FunctionProfile", parse_document(manifest, source))


def _file_name(source: str) -> str:
    """Take the file name of a path; replace what is not UTF-8, which YAML cannot hold."""
    return PurePath(source).name.encode(errors="replace").decode()
