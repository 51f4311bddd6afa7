"""Measured points of functions: a file of them, and the FunctionProfile that they make."""

from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import cast

from pydantic import Field, ValidationError

from scheduler.model.document_fields import Name
from scheduler.model.document_reader import DocumentError, Problem, parse_document
from scheduler.model.documents import FunctionProfile, ProfiledConfiguration
from scheduler.model.message_text import reason_of
from scheduler.model.names import GROUP
from workbench.profiles.adaptive_plan import Point
from workbench.profiles.batch_times import BatchTimes
from workbench.profiles.dominance import point
from workbench.profiles.profile_documents import gpu_section, profile_manifest
from workbench.profiles.quantile_intervals import Interval

ANNOTATION_MEASURED = f"{GROUP}/measured"
_DIGITS = 4  # a tenth of a microsecond


class MeasuredPoint(ProfiledConfiguration):
    """One point of a profile, and what it rests on; ``latencyMs`` is the median.

    Attributes:
        function: name of the function.
        gpu_model: NVML's name of the GPU.
        server: address and model that were measured.
        median_interval_ms, p95_interval_ms: confidence intervals; None: too few runs.
        cv_ratio: coefficient of variation of the runs.
        is_precise: false if a limit of time or runs ended the measurement.
        output_mib: output of one request, in MiB.
        cold_start_ms: time from the creation of the pod to its first answer; None: not measured.
        neighbour_percent: GPU share of other pods on the same GPU; None: unknown.
    """

    function: Name
    gpu_model: str
    server: str
    runs: int = Field(ge=1)
    median_interval_ms: Interval | None
    p95_interval_ms: Interval | None
    cv_ratio: float
    is_precise: bool
    output_mib: float = Field(ge=0)
    cold_start_ms: float | None = None
    neighbour_percent: int | None = None

    @property
    def key(self) -> tuple[str, str, Point]:
        """Function, GPU model and point."""
        return self.function, self.gpu_model, point(self)

    def describe(self) -> str:
        """Format the point in one line."""
        return (
            f"batch {self.batch}, {self.cpu} vCPU, {self.gpu_percent} %: "
            f"median {self.latency_ms:,.2f} ms{_within(self.median_interval_ms)}, "
            f"p95 {_optional(self.p95_ms)}{_within(self.p95_interval_ms)}, "
            f"CV {100 * self.cv_ratio:.1f} %, {self.runs:,} runs"
            + ("" if self.is_precise else "; a limit ended it before the intervals were narrow")
        )


def times_fields(times: BatchTimes) -> dict[str, object]:
    """Return the fields of a point that follow from the times of its runs.

    A 95th percentile without an interval is left out: it is that of too few runs.
    """
    p95_ms = None if times.p95_interval_ms is None else round(times.p95_ms, _DIGITS)
    return {
        "latency_ms": round(times.median_ms, _DIGITS),
        "p95_ms": p95_ms,
        "runs": times.runs,
        "median_interval_ms": times.median_interval_ms,
        "p95_interval_ms": times.p95_interval_ms,
        "cv_ratio": times.cv_ratio,
        "is_precise": times.is_precise,
    }


def read_points(file: Path) -> list[MeasuredPoint]:
    """Read the points of a file; none if there is no file.

    A last line without its end, which an interruption left, is no point.

    Raises:
        DocumentError: the file cannot be read, or a line is no point.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(
            [Problem(str(file), "the file", "", f"cannot be read: {reason_of(error)}")]
        ) from None
    points = []
    for number, line in enumerate(StringIO(text), start=1):  # `splitlines` knows other ends
        if not line.endswith("\n"):
            break
        try:
            points.append(MeasuredPoint.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place, message = ".".join(map(str, first["loc"])), first["msg"]
            raise DocumentError([Problem(str(file), f"line {number}", place, message)]) from None
    return points


def append_point(file: Path, measured: MeasuredPoint) -> None:
    """Add a point to the file, behind the last whole line.

    Raises:
        OSError: the file cannot be written.
    """
    with file.open("ab+") as stream:
        stream.seek(0)
        content = stream.read()
        stream.truncate(content.rfind(b"\n") + 1)
        stream.write(measured.model_dump_json(by_alias=True).encode() + b"\n")


def measured_profile(
    points: Sequence[MeasuredPoint], *, cold_start_ms: float | None = None
) -> FunctionProfile:
    """Return the profile of a function.

    Args:
        points: measured points of one function, at least one; of two of one place the last counts.
        cold_start_ms: time from pod start to first batch; None: the longest of the points.
    """
    latest = {measured.key: measured for measured in points}
    by_model: dict[str, list[ProfiledConfiguration]] = {}
    for (_, gpu_model, _), measured in sorted(latest.items()):
        by_model.setdefault(gpu_model, []).append(_configuration(measured))
    starts_ms = [p.cold_start_ms for p in latest.values() if p.cold_start_ms is not None]
    if cold_start_ms is None and starts_ms:
        cold_start_ms = round(max(starts_ms), _DIGITS)
    manifest = profile_manifest(
        points[0].function,
        [gpu_section(model, rows) for model, rows in by_model.items()],
        annotations={ANNOTATION_MEASURED: _remark(latest.values())},
        cold_start_ms=cold_start_ms,
        output_mib=max(measured.output_mib for measured in latest.values()) or None,
    )
    return cast("FunctionProfile", parse_document(manifest, "the measurement"))


def _configuration(measured: MeasuredPoint) -> ProfiledConfiguration:
    fields = measured.model_dump(include=set(ProfiledConfiguration.model_fields), exclude_none=True)
    return ProfiledConfiguration.model_validate(fields)


def _remark(points: Iterable[MeasuredPoint]) -> str:
    runs = [measured.runs for measured in points]
    imprecise = sum(not measured.is_precise for measured in points)
    text = f"medians of {min(runs)} to {max(runs)} runs a point"
    return f"{text}; {imprecise} of {len(runs)} points ended at a limit" if imprecise else text


def _within(interval: Interval | None) -> str:
    return "" if interval is None else f" ({interval[0]:,.2f} to {interval[1]:,.2f})"


def _optional(value_ms: float | None) -> str:
    return "unknown" if value_ms is None else f"{value_ms:,.2f} ms"
