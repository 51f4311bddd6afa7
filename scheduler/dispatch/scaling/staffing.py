"""Number of pods for a load and an objective: square-root staffing.

With ``busy + reserve * sqrt(busy)`` servers the probability that a request waits hardly depends on
the load (Halfin and Whitt, "Heavy-traffic limits for queues with many exponential servers", 1981),
and that of a wait longer than t run times falls with ``exp(-2 reserve sqrt(busy) t)``, for run
times that vary little and arrivals of a Poisson process. Where the counts of arrivals have z times
its variance, so has the number of rows that would run at once: the reserve is that of
``sqrt(z busy)``, and the exponent has ``sqrt(busy / z)`` (Whitt, "Heavy-traffic approximations for
service systems with blocking", 1984: peakedness). The reserve is the one with which as many rows
wait longer than allowed as the objective allows to miss.
"""

from math import erfc, exp, pi, sqrt

RUN_WAIT_RATIO = 1.0  # rows that wait for one run share the next batch
_RESERVE_MAX = 8.0  # in standard deviations: no objective needs more
_HALVINGS = 20  # of the range of reserves


def staffed_pods(
    busy_pods: float,
    objective_ratio: float,
    run_wait_ratio: float = RUN_WAIT_RATIO,
    dispersion_ratio: float = 1.0,
) -> float:
    """Return the number of pods for a load that keeps so many busy on average.

    Args:
        busy_pods: pods that the load keeps busy.
        objective_ratio: ratio of the rows that wait no longer than allowed.
        run_wait_ratio: allowed wait as a ratio of the run time; 0: none waits at all.
        dispersion_ratio: variance of the counts of arrivals over their mean; 1: a Poisson process.
    """
    root = sqrt(busy_pods / dispersion_ratio)
    low, high = 0.0, _RESERVE_MAX
    for _ in range(_HALVINGS):
        reserve_ratio = (low + high) / 2.0
        late_ratio = _wait_ratio(reserve_ratio) * exp(-2.0 * reserve_ratio * root * run_wait_ratio)
        if late_ratio > 1.0 - objective_ratio:
            low = reserve_ratio
        else:
            high = reserve_ratio
    return busy_pods + high * sqrt(busy_pods * dispersion_ratio)


def _wait_ratio(reserve_ratio: float) -> float:
    """Return the probability of a wait in a large pool with a reserve."""
    density = exp(-(reserve_ratio**2) / 2.0) / sqrt(2.0 * pi)
    probability = erfc(-reserve_ratio / sqrt(2.0)) / 2.0
    return density / (density + reserve_ratio * probability)
