"""The gaps between arrivals: their range, their rate, their variation, their bursts."""

import numpy as np
import pytest
from scipy import stats

from scheduler.model.document_reader import DocumentError
from tests.simulation.workloads.arriving import WORKFLOWS, collected, variation
from workbench.simulation.workloads.arrivals import Extent
from workbench.simulation.workloads.bursts import Bursts
from workbench.simulation.workloads.gamma import Gamma
from workbench.simulation.workloads.paper import (
    GAPS_MS,
    PAPER_SETTINGS,
    SETTINGS,
    Paper,
    Setting,
)
from workbench.simulation.workloads.poisson import Poisson

ONE = WORKFLOWS[:1]
MANY = Extent(requests=200_000)
ONCE_IN_10000 = 1e-4  # with fixed seeds a test either always passes or never


@pytest.mark.parametrize(
    ("load", "shortest_ms", "longest_ms"),
    [("heavy", 10.0, 16.8), ("normal", 20.0, 33.6), ("light", 40.0, 67.2)],
)
def test_gaps_of_the_paper(load, shortest_ms, longest_ms):
    """Uniform in the load's range, and each of the workflows as likely as the others."""
    times_ms, indices = collected(Paper(load=load).arrivals(WORKFLOWS, seed=1, extent=MANY))
    gaps_ms = np.diff(times_ms)
    assert gaps_ms.min() >= shortest_ms * (1 - 1e-9)
    assert gaps_ms.max() <= longest_ms * (1 + 1e-9)
    uniform = stats.uniform(shortest_ms, longest_ms - shortest_ms)
    assert stats.kstest(gaps_ms, uniform.cdf).pvalue > ONCE_IN_10000
    assert stats.chisquare(np.bincount(indices, minlength=4)).pvalue > ONCE_IN_10000


def test_settings_of_the_paper():
    """Nine pairs of an SLO and a load, of which it reports three."""
    assert len(SETTINGS) == 9
    assert len(set(SETTINGS.values())) == 9
    reported = {name: SETTINGS[name] for name in PAPER_SETTINGS}
    assert reported == {
        "strict-light": Setting(0.8, "light"),
        "moderate-normal": Setting(1.0, "normal"),
        "relaxed-heavy": Setting(1.2, "heavy"),
    }
    assert {setting.load for setting in SETTINGS.values()} == set(GAPS_MS)


def test_poisson_gaps_are_exponential_for_each_workflow():
    """At its own rate; a workflow that has none never arrives."""
    rates = {"a": 50.0, "other/b": 5.0, "c": 0.5}
    times_ms, indices = collected(Poisson(rate_rps=rates).arrivals(WORKFLOWS, seed=2, extent=MANY))
    for index, rate_rps in enumerate([50.0, 0.0, 5.0, 0.5]):
        gaps_ms = np.diff(times_ms[indices == index])
        if not rate_rps:
            assert not gaps_ms.size
            continue
        exponential = stats.expon(scale=1000 / rate_rps)
        assert stats.kstest(gaps_ms, exponential.cdf).pvalue > ONCE_IN_10000


@pytest.mark.parametrize("cv", [0.01, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("together", [False, True])
def test_gamma_gaps_vary_as_chosen(cv, together):
    """Per workflow, or for all workflows together."""
    workload = Gamma(rate_rps=100.0, cv=cv, together=together)
    times_ms, indices = collected(workload.arrivals(WORKFLOWS, seed=3, extent=MANY))
    streams = [times_ms] if together else [times_ms[indices == i] for i in range(4)]
    for stream_ms in streams:
        assert variation(stream_ms) == pytest.approx(cv, rel=0.05)
        gaps_ms = np.diff(stream_ms)
        # The mean of n gaps is off by cv / sqrt(n) of itself, one standard deviation.
        expected_ms = 10.0 * len(streams)
        assert gaps_ms.mean() == pytest.approx(expected_ms, rel=4 * cv / gaps_ms.size**0.5)


def test_together_each_request_is_of_a_workflow_by_its_rate():
    """Regular gaps of all, and of each what chance leaves of them."""
    workload = Gamma(rate_rps={"a": 30.0, "c": 10.0}, cv=0.1, together=True)
    times_ms, indices = collected(workload.arrivals(WORKFLOWS, seed=3, extent=MANY))
    assert set(indices.tolist()) == {0, 3}
    assert (indices == 0).mean() == pytest.approx(0.75, abs=0.005)
    # A geometric number of gaps: 1 - p and the gaps' own part of the variation, p * cv ** 2.
    assert variation(times_ms[indices == 3]) ** 2 == pytest.approx(0.75 + 0.25 * 0.01, rel=0.05)


def test_fixed_bursts_are_as_long_as_said():
    """With nothing in between, all arrivals lie in the high part of the cycle, evenly."""
    workload = Bursts(rate_rps=20.0, high_ms=300.0, low_ms=700.0, lengths="fixed")
    times_ms, _ = collected(workload.arrivals(ONE, seed=4, extent=MANY))
    phases_ms = np.sort(times_ms % 1000.0)
    pauses_ms = np.diff(phases_ms, append=phases_ms[0] + 1000.0)
    assert pauses_ms.max() == pytest.approx(700.0, abs=0.1)
    start_ms = phases_ms[(pauses_ms.argmax() + 1) % phases_ms.size]
    within = ((phases_ms - start_ms) % 1000.0) / 300.0
    assert stats.kstest(within, stats.uniform.cdf).pvalue > ONCE_IN_10000
    assert times_ms.size / times_ms[-1] * 1000.0 == pytest.approx(20.0, rel=0.01)


def test_a_low_rate_is_a_part_of_the_high_one():
    """A quarter of it, half of the time: a fifth of the arrivals."""
    workload = Bursts(rate_rps=50.0, high_ms=1e6, low_ms=1e6, low_ratio=0.25, lengths="fixed")
    extent = Extent(duration_ms=8e6)
    times_ms, _ = collected(workload.arrivals(ONE, seed=5, extent=extent))
    per_second = np.bincount((times_ms // 1000).astype(int), minlength=8000)
    assert per_second.mean() == pytest.approx(50.0, rel=0.01)
    high = per_second > 50
    assert high.mean() == pytest.approx(0.5, abs=0.02)
    assert per_second[high].mean() == pytest.approx(80.0, rel=0.02)
    assert per_second[~high].mean() == pytest.approx(20.0, rel=0.02)


def test_exponential_bursts_vary_as_an_interrupted_poisson_process():
    """CV^2 = 1 + 2 r a / (a + b)^2: rate r while on, ending at rate a, beginning at rate b."""
    workload = Bursts(rate_rps=20.0, high_ms=200.0, low_ms=300.0)
    times_ms, _ = collected(workload.arrivals(ONE, seed=6, extent=MANY))
    per_s, ends, begins = 50.0, 5.0, 1 / 0.3
    expected = 1 + 2 * per_s * ends / (ends + begins) ** 2
    assert variation(times_ms) ** 2 == pytest.approx(expected, rel=0.05)
    assert np.diff(times_ms).mean() == pytest.approx(50.0, rel=0.02)


def test_short_periods_are_a_poisson_process():
    """When hundreds of periods pass between two arrivals, nothing of them is left."""
    workload = Bursts(rate_rps=0.5, high_ms=5.0, low_ms=5.0)
    extent = Extent(requests=1_000)
    times_ms, _ = collected(workload.arrivals(ONE, seed=7, extent=extent))
    exponential = stats.expon(scale=2000.0)
    assert stats.kstest(np.diff(times_ms), exponential.cdf).pvalue > ONCE_IN_10000


@pytest.mark.slow
@pytest.mark.parametrize("lengths", ["fixed", "exponential"])
def test_a_start_is_anywhere_in_a_cycle(lengths):
    """Over many seeds, the rate just after the start is the mean rate."""
    workload = Bursts(rate_rps=100.0, high_ms=1e4, low_ms=3e4, lengths=lengths)
    extent = Extent(duration_ms=100.0)
    counts = [
        collected(workload.arrivals(ONE, seed=seed, extent=extent))[0].size for seed in range(300)
    ]
    assert np.mean(counts) == pytest.approx(10.0, abs=4 * np.std(counts) / 300**0.5)
    assert np.mean(np.array(counts) > 0) == pytest.approx(0.25, abs=0.1)


def test_bursts_together_come_at_the_same_time():
    """Workflows that share bursts are silent together."""
    for together, correlation_min, correlation_max in ((True, 0.9, 1.0), (False, -0.1, 0.1)):
        workload = Bursts(rate_rps=400.0, high_ms=1e3, low_ms=1e3, together=together)
        times_ms, indices = collected(workload.arrivals(WORKFLOWS[:2], seed=8, extent=MANY))
        tenths = [
            np.bincount((times_ms[indices == i] // 100).astype(int), minlength=4000)[:4000]
            for i in range(2)
        ]
        assert correlation_min <= np.corrcoef(*tenths)[0, 1] <= correlation_max


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"x": 1.0}, r"'x' is not a workflow; there are default/a, default/b, other/b, other/c"),
        ({"b": 1.0}, r"'b' is in namespaces default, other; write NAMESPACE/b"),
        ({"a": 1.0, "default/a": 1.0}, r"the workflow 'default/a' has two rates; remove one"),
    ],
)
def test_a_rate_is_of_one_workflow(rates, message):
    """Impossible parameters are refused at once, with the valid range."""
    workload = Poisson(rate_rps=rates)
    expected = rf"^workload poisson: rateRps: {message}$"
    for ask in (
        lambda: workload.arrivals(WORKFLOWS, seed=1),
        lambda: workload.mean_rate_rps(WORKFLOWS),
    ):
        with pytest.raises(DocumentError, match=expected):
            ask()
