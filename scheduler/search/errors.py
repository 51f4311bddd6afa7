"""Exceptions of this package."""


class PlanningError(ValueError):
    """A request without a plan under any budget; the message states the reason."""
