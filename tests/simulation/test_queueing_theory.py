"""Waiting times and flows against queueing theory, by the run's own confidence."""

from math import factorial, sqrt

import numpy as np
import pytest

from tests.simulation.harness import Poisson, one_function, quiet
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers

SERVICE_MS = 10.0
REQUESTS = 80_000
BATCHES = 40  # of consecutive requests: long enough that their means are nearly independent
STUDENT = 3.56  # two-sided 99.9 % with 39 degrees of freedom


def mean_wait_ms(servers: int, load_ratio: float, seed: int) -> tuple[float, float]:
    """Mean waiting time with so many containers at a time, and half of its confidence interval."""
    share = 100 // servers
    catalogue = one_function([(1, 1, share, SERVICE_MS)], slo_ms=100.0)
    arrivals = Poisson(SERVICE_MS / servers / load_ratio, seed)
    waits_ms = np.empty(REQUESTS)

    def record(request):
        waits_ms[request.number] = request.queue_ms

    scenario = quiet(warm_containers=servers)
    result = simulate(
        scenario, catalogue, arrivals, "minimum", requests=REQUESTS, observers=Observers(record)
    )
    assert result.cold_starts == 0
    assert result.ran_dollars == pytest.approx(
        REQUESTS * SERVICE_MS / 3_600_000 * (0.034 + share / 100 * 4.69)
    )
    means_ms = waits_ms.reshape(BATCHES, -1).mean(axis=1)
    return float(means_ms.mean()), STUDENT * float(means_ms.std(ddof=1)) / sqrt(BATCHES)


@pytest.mark.slow
@pytest.mark.parametrize("load_ratio", [0.3, 0.6])
def test_one_server_waits_as_pollaczek_and_khinchine_say(load_ratio):
    """M/D/1: half of what exponential service would wait."""
    expected_ms = load_ratio * SERVICE_MS / (2 * (1 - load_ratio))
    measured_ms, error_ms = mean_wait_ms(1, load_ratio, seed=1)
    assert error_ms < 0.1 * expected_ms  # or the comparison would say nothing
    assert measured_ms == pytest.approx(expected_ms, abs=error_ms)


@pytest.mark.slow
@pytest.mark.parametrize("servers", [2, 4])
def test_several_servers_wait_as_cosmetatos_says(servers):
    """M/D/c by his approximation from M/M/c, which is good to about 2 % at such loads."""
    load_ratio = 0.7
    expected_ms = cosmetatos_ms(servers, load_ratio)
    measured_ms, error_ms = mean_wait_ms(servers, load_ratio, seed=2)
    assert error_ms < 0.12 * expected_ms
    assert measured_ms == pytest.approx(expected_ms, abs=error_ms + 0.02 * expected_ms)


def cosmetatos_ms(servers: int, load_ratio: float) -> float:
    """Mean waiting time of M/D/c (Cosmetatos, Operational Research Quarterly 26, 1975)."""
    offered = servers * load_ratio
    full = offered**servers / factorial(servers) / (1 - load_ratio)
    waits = full / (sum(offered**k / factorial(k) for k in range(servers)) + full)  # Erlang C
    exponential_ms = waits * SERVICE_MS / (servers * (1 - load_ratio))
    corrected = 1 + (1 - load_ratio) * (servers - 1) * (sqrt(4 + 5 * servers) - 2) / (
        16 * load_ratio * servers
    )
    return exponential_ms * corrected / 2


def served(requests: int, *, load_ratio: float, noise_ratio: float, share: int, seed: int):
    """Arrivals and ends of requests at one server, in order of arrival, and the result."""
    catalogue = one_function([(1, 1, share, SERVICE_MS)], slo_ms=100.0)
    arrivals = Poisson(SERVICE_MS / load_ratio, seed)
    records = []
    result = simulate(
        quiet(noise_ratio=noise_ratio),
        catalogue,
        arrivals,
        "minimum",
        requests=requests,
        seed=seed,
        observers=Observers(records.append),
    )
    records.sort(key=lambda record: record.number)
    return records, result


@pytest.mark.slow
def test_unlike_services_wait_as_pollaczek_and_khinchine_say():
    """M/G/1: the wait follows from the first two moments of the run times."""
    load_ratio = 0.5
    records, _ = served(REQUESTS, load_ratio=load_ratio, noise_ratio=0.5, share=100, seed=4)
    execute_ms = np.array([record.execute_ms for record in records])
    waits_ms = np.array([record.queue_ms for record in records])
    rate_per_ms = load_ratio / SERVICE_MS
    busy_ratio = rate_per_ms * execute_ms.mean()
    expected_ms = rate_per_ms * np.square(execute_ms).mean() / (2 * (1 - busy_ratio))
    means_ms = waits_ms.reshape(BATCHES, -1).mean(axis=1)
    error_ms = STUDENT * means_ms.std(ddof=1) / sqrt(BATCHES)
    assert error_ms < 0.1 * expected_ms
    assert waits_ms.mean() == pytest.approx(expected_ms, abs=error_ms)


@pytest.mark.slow
def test_arrivals_see_as_many_requests_as_littles_law_says():
    """The number in the system that Poisson arrivals see is their rate times the time in it."""
    load_ratio = 0.6
    records, _ = served(REQUESTS, load_ratio=load_ratio, noise_ratio=0.0, share=100, seed=5)
    arrivals_ms = np.array([record.arrival_ms for record in records])
    ends_ms = np.sort([record.end_ms for record in records])
    seen = np.arange(REQUESTS) - np.searchsorted(ends_ms, arrivals_ms, "right")
    time_ms = float(np.mean([record.end_ms - record.arrival_ms for record in records]))
    means = seen.reshape(BATCHES, -1).mean(axis=1)
    error = STUDENT * means.std(ddof=1) / sqrt(BATCHES)
    assert error < 0.1
    assert seen.mean() == pytest.approx(load_ratio / SERVICE_MS * time_ms, abs=error)


@pytest.mark.parametrize("share", [100, 40])
def test_the_held_share_is_the_throughput_times_the_service(share):
    """Utilisation law: over a run, share times run time times requests, over its length."""
    _, result = served(3_000, load_ratio=0.4, noise_ratio=0.2, share=share, seed=6)
    assert result.hits + result.misses == 3_000
    dollars_ms = (0.034 + share / 100 * 4.69) / 3_600_000
    busy_ms = result.ran_dollars / dollars_ms
    assert result.mean_utilisation_ratio == pytest.approx(
        share / 100 * busy_ms / result.simulated_ms
    )
    assert result.paid_dollars == pytest.approx(result.ran_dollars)
