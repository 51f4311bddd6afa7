"""Waiting for a batch to fill: when it has been long enough."""

from workbench.simulation.policy import SchedulingRequest

_CLOCK_MS = 1e-3  # more than rounding takes of a difference of two instants


def is_over(question: SchedulingRequest, time_out_ms: float) -> bool:
    """Whether the oldest job has waited so long."""
    return question.waited_ms + _CLOCK_MS >= time_out_ms


def end_ms(question: SchedulingRequest, time_out_ms: float) -> float:
    """When it will have, on the virtual clock."""
    return question.now_ms - question.waited_ms + time_out_ms
