"""The service under test."""

from tests.extender.fixtures import clock, extender, goes_on, shared

__all__ = ["clock", "extender", "goes_on", "shared"]
