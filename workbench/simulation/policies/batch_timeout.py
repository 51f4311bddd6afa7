"""Time-outs of batches that wait to fill."""

from workbench.simulation.policy import SchedulingRequest

_CLOCK_MS = 1e-3  # exceeds the rounding error of a difference of two instants


def is_over(request: SchedulingRequest, time_out_ms: float) -> bool:
    """Return whether the oldest job has waited for the time-out."""
    return request.waited_ms + _CLOCK_MS >= time_out_ms


def end_ms(request: SchedulingRequest, time_out_ms: float) -> float:
    """Return the time of the virtual clock at which the oldest job will have waited for it."""
    return request.now_ms - request.waited_ms + time_out_ms
