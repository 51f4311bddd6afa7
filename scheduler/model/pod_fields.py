"""Values in the labels, annotations and resources of a pod, and the error of invalid ones."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from scheduler.model import names
from scheduler.model.message_text import quoted
from scheduler.model.quantity import QuantityError

QUEUED_MAX = 1_000_000
RATE_MAX = 1e9
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)
_RATE = re.compile(r"(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,12})?(?:Z|[+-]\d\d:\d\d)", re.ASCII
)


class PodError(ValueError):
    """An invalid label or annotation; the message names it and states the remedy."""


def timestamp_s(text: object) -> float:
    """Parse an RFC 3339 time; return seconds since the epoch.

    Raises:
        ValueError: the text is not an RFC 3339 time, or has no time zone.
    """
    if not isinstance(text, str) or not _RFC_3339.fullmatch(text.upper()):
        raise ValueError(f"not an RFC 3339 time: {quoted(text)}")
    return datetime.fromisoformat(text.upper()).timestamp()


def optional_timestamp_s(annotations: Mapping[str, Any], key: str) -> float | None:
    """Parse the time of an annotation; None if it is absent."""
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return timestamp_s(text)
    except ValueError:
        raise PodError(
            f"annotation {key}: {quoted(text)} is not an RFC 3339 time; "
            "write it as 2026-01-31T12:00:00.250Z"
        ) from None


def queued_of(annotations: Mapping[str, Any]) -> int | None:
    """Parse the number of queued requests; None if it is absent."""
    if names.ANNOTATION_QUEUED not in annotations:
        return None
    return integer_of(annotations, names.ANNOTATION_QUEUED, 1, QUEUED_MAX)


def rate_rps_of(annotations: Mapping[str, Any]) -> float | None:
    """Parse the rate of requests per second; None if it is absent."""
    text = annotations.get(names.ANNOTATION_RATE)
    if text is None:
        return None
    rate_rps = float(text) if isinstance(text, str) and _RATE.fullmatch(text) else 0.0
    if not 0 < rate_rps <= RATE_MAX:
        raise PodError(
            f"annotation {names.ANNOTATION_RATE}: {quoted(text)} must be requests per second, "
            f"above 0 and at most {RATE_MAX:.0e}"
        )
    return rate_rps


def integer_of(annotations: Mapping[str, Any], key: str, minimum: int, maximum: int) -> int:
    """Parse the whole number of an annotation."""
    text = annotations.get(key)
    if isinstance(text, str) and _WHOLE.fullmatch(text) and minimum <= int(text) <= maximum:
        return int(text)
    raise PodError(
        f"annotation {key}: {quoted(text)} must be a whole number from {minimum} to {maximum}"
    )


def ceiling_of(resources: Mapping[str, Any], resource: str, read: Any, maximum: int) -> int | None:
    """Parse the request of a resource, or else its limit; None if it has neither."""
    for part in ("requests", "limits"):
        quantities = resources.get(part) or {}
        if resource in quantities:
            try:
                return min(int(read(quantities[resource])), maximum)
            except QuantityError as error:
                raise PodError(f"resources.{part}.{resource}: {error}") from None
    return None
