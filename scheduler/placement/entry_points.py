"""Calls of kernels without the dispatch of their compiler."""

from typing import Any


def entry_point(kernel: Any) -> Any:
    """Return the compiled function of a kernel with one signature, without Numba's dispatch.

    The dispatch finds the types of named tuples by a slow way: 3 us, half of a placement. Callers
    pass the types of the signature. Any other kernel is returned itself: one that is not compiled,
    and one of an extension.
    """
    overloads = getattr(kernel, "overloads", None)
    return kernel if overloads is None else next(iter(overloads.values())).entry_point
