"""The JSON patch (RFC 6902) from one JSON value to another."""

from collections.abc import Iterator
from typing import Any


def patch(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """The operations that make ``after`` of ``before``; none where they are equal.

    A list whose length changes is written whole: an operation in the middle of one would hold only
    as long as no other webhook changes it first.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() - after.keys()):
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
        for key, value in after.items():
            below = f"{path}/{_escaped(key)}"
            if key in before:
                yield from patch(before[key], value, below)
            else:
                yield {"op": "add", "path": below, "value": value}
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from patch(old, new, f"{path}/{index}")
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
