"""Calls of kernels without Numba's dispatch."""

from collections.abc import Callable
from typing import Any, TypeVar

CallT = TypeVar("CallT", bound=Callable[..., Any])


def entry_point(kernel: CallT) -> CallT:
    """Return the compiled function of a kernel with one signature, without Numba's dispatch.

    The dispatch finds the types of named tuples and records by a slow way: 3 us, of some 10 us that
    a placement or a plan takes. Here the caller passes the types of the signature. Any other kernel
    is returned itself: one that is not compiled, and one of an extension.
    """
    overloads = getattr(kernel, "overloads", None)
    return kernel if overloads is None else next(iter(overloads.values())).entry_point
