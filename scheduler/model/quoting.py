"""Users' text inside error messages: shown, but never so long that it hides the message.

An error ends up in a pod's condition and in Events, whose room Kubernetes limits (1 KiB an Event).
"""

_SHOWN_MAX = 80  # characters


def quoted(value: object, *, most: int = _SHOWN_MAX) -> str:
    """A value as Python writes it, cut where it is long."""
    if isinstance(value, str):
        return repr(value) if len(value) <= most else f"{value[:most]!r}… ({len(value):,} long)"
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, bool | int | float) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"


def listed(names: list[str], *, most: int = 10) -> str:
    """Names after one another, the first few of many; "none" where there are none."""
    shown = ", ".join(names[:most]) or "none"
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
