"""The service under test, and its binder alone."""

from tests.extender.fixtures import binder, clock, extender, goes_on, monotonic, shared, wall

__all__ = ["binder", "clock", "extender", "goes_on", "monotonic", "shared", "wall"]
