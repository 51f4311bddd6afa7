"""The room's own exceptions."""


class PlanningError(ValueError):
    """A question that has no answer under any budget; the message says what stands in the way."""
