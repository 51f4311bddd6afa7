"""The extender that plans, and its clocks."""

from tests.extender.fixtures import clock, extender, monotonic, shared, wall

__all__ = ["clock", "extender", "monotonic", "shared", "wall"]
