"""Users' text inside error messages, truncated so that it does not hide the message.

Errors appear in pod conditions and Events, whose length Kubernetes limits (1 KiB per Event).
"""

_CHARACTERS_MAX = 80


def quoted(value: object, *, limit: int = _CHARACTERS_MAX) -> str:
    """Return the ``repr`` of a value, truncated after ``limit`` characters."""
    if isinstance(value, str):
        return repr(value) if len(value) <= limit else f"{value[:limit]!r}… ({len(value):,} long)"
    if isinstance(value, int) and value.bit_length() > 4 * limit:
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, bool | int | float) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"


def listed(names: list[str], *, limit: int = 10) -> str:
    """Join names by commas: the first ``limit`` of them, or "none"."""
    text = ", ".join(names[:limit]) or "none"
    return text if len(names) <= limit else f"{text} and {len(names) - limit:,} more"
