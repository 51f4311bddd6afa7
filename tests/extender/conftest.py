"""The service under test."""

from tests.extender.fixtures import clock, extender, shared

__all__ = ["clock", "extender", "shared"]
