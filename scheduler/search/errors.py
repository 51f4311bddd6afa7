"""Exceptions of this package."""


class PlanningError(ValueError):
    """A request without a plan under any budget; the message states the reason."""


class NoNodeError(PlanningError):
    """No node is large enough for any configuration of a stage; the message names the largest."""
