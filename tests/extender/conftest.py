"""The service under test, its binder alone, and several processes of it."""

from tests.extender.fixtures import binder, clock, extender, goes_on, monotonic, shared, wall
from tests.extender.replicas import replicas

__all__ = ["binder", "clock", "extender", "goes_on", "monotonic", "replicas", "shared", "wall"]
