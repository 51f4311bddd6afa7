"""Text inside error messages: of users, truncated so that it does not hide the message, and causes.

Errors appear in pod conditions and Events, whose length Kubernetes limits (1 KiB per Event).
"""

import os

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


def reason_of(error: Exception) -> str:
    """Return why a file or an address cannot be used, without its name and the error's number."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8: {error.reason}"
    cause = getattr(error, "reason", error)  # of a URLError
    if not isinstance(cause, OSError):
        return str(cause)
    if cause.errno and str(cause.strerror).startswith("Connect call failed"):
        return os.strerror(cause.errno)  # asyncio's text has the address in place of the reason
    return cause.strerror or str(cause)


def os_error_text(error: OSError, place: object = "") -> str:
    """Return the file that an error names, or ``place``, and the reason."""
    return f"{error.filename or place}: {reason_of(error)}"
