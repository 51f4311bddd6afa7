"""Laws of every workload: contract, number, bytes and memory of its arrivals."""

import tracemalloc
from itertools import islice

import numpy as np
import pytest

from scheduler.model.document_reader import DocumentError
from tests.simulation.workloads.arriving import WORKFLOWS, azure_csv, collected, requests_csv
from workbench.simulation.workload import CHUNK_MAX
from workbench.simulation.workloads import requests
from workbench.simulation.workloads.arrivals import Extent
from workbench.simulation.workloads.registry import WORKLOADS, parse_workload

PARAMETERS = {
    "paper": {"load": "heavy"},
    "poisson": {"rateRps": {"a": 300.0, "default/b": 20.0}},
    "periodic": {"rateRps": {"a": 300.0, "default/b": 20.0}},
    "gamma": {"rateRps": {"a": 300.0, "other/b": 20.0}, "cv": 2.0},
    "gamma, together": {"rateRps": 200.0, "cv": 0.5, "together": True},
    "bursts": {"rateRps": {"a": 300.0, "c": 2.0}, "highMs": 2e3, "lowMs": 8e3, "lowRatio": 0.1},
    "bursts, together": {
        "rateRps": 200.0, "highMs": 2e3, "lowMs": 8e3, "lengths": "fixed", "together": True,
    },
    "generated": {"rateRps": 200.0},
    "generated, at random": {"rateRps": 200.0, "workflowOf": "at-random"},
    "azure": {"rateRps": 3000.0, "withinMinute": "even"},
    "log": {"rateRps": 3000.0, "timeColumn": "at", "functionColumn": "model"},
    "per-second": {"rateRps": 100_000.0},
    "requests": {},
}  # fmt: skip
FROM_FILES = {"azure", "log", "per-second", "requests"}
LEFT_TO_CHANCE = [case for case in PARAMETERS if case not in FROM_FILES]
CHUNK_OF_REQUESTS = 1_000  # instead of CHUNK_MAX: what is read is slower than what is drawn


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workloads")
    counts = {"f": [5_000, 0, 20_000, 3], "g": [0, 0, 40_000, 1], "h": [400, 0, 9, 100_000]}
    azure_csv(folder / "azure.csv", counts)
    log = "".join(f"{i * 4.8},{'fgh'[i % 3]}\n" for i in range(50))
    (folder / "log.csv").write_text("at,model\n" + log, "utf-8")
    (folder / "per-second.csv").write_text("second,a,c\n5,70,3\n6,0,9\n7,90,1\n", "utf-8")
    rows = ((i * 7.5, "ac"[i % 2]) for i in range(4 * CHUNK_OF_REQUESTS))
    requests_csv(folder / "requests.csv", rows)
    return folder


@pytest.fixture(params=PARAMETERS)
def workload(request, folder, monkeypatch):
    monkeypatch.setattr(requests, "CHUNK_MAX", CHUNK_OF_REQUESTS)
    return build(request.param, folder)


@pytest.fixture
def chunk(workload):
    return CHUNK_OF_REQUESTS if workload.name == "requests" else CHUNK_MAX


def build(case, folder):
    name = case.split(",", maxsplit=1)[0]
    file = {"file": str(folder / f"{name}.csv")} if name in FROM_FILES else {}
    return parse_workload(name, PARAMETERS[case] | file, "test")


def test_each_workload_is_tried_here():
    """A workload that is registered and not looked at below would go unseen."""
    assert {case.split(",", maxsplit=1)[0] for case in PARAMETERS} == set(WORKLOADS)
    assert {name: kind.name for name, kind in WORKLOADS.items()} == {n: n for n in WORKLOADS}


def test_as_many_requests_as_asked(workload, chunk):
    """To the request, whether less than a chunk or more."""
    for count in (1, chunk, chunk + 1, 2 * chunk + 7):
        arrivals = workload.arrivals(WORKFLOWS, seed=3, extent=Extent(requests=count))
        times_ms, _ = collected(arrivals)
        assert count == times_ms.size


def test_the_first_requests_are_those_of_a_longer_run(workload, chunk):
    """The extent does not change the arrivals."""
    short = workload.arrivals(WORKFLOWS, seed=3, extent=Extent(requests=chunk + 7))
    long = workload.arrivals(WORKFLOWS, seed=3, extent=Extent(requests=2 * chunk))
    for shorter, longer in zip(collected(short), collected(long), strict=True):
        assert (shorter == longer[: shorter.size]).all()


@pytest.mark.slow
def test_as_long_as_asked(workload, chunk):
    """All that arrives before the end, and nothing else."""
    long = collected(workload.arrivals(WORKFLOWS, seed=3, extent=Extent(requests=2 * chunk)))
    until_ms = float(long[0][chunk + 7])
    extent = Extent(duration_ms=until_ms)
    times_ms, indices = collected(workload.arrivals(WORKFLOWS, seed=3, extent=extent))
    before = long[0] < until_ms
    assert (times_ms == long[0][before]).all()
    assert (indices == long[1][before]).all()


def test_the_same_seed_gives_the_same_bytes(workload):
    """In a second iteration, from arrivals made again, from the seed as a sequence."""

    def bytes_of(arrivals):
        return [(times.tobytes(), rows.tobytes()) for times, rows in islice(arrivals.chunks(), 2)]

    arrivals = workload.arrivals(WORKFLOWS, seed=5)
    first = bytes_of(arrivals)
    assert first == bytes_of(arrivals)
    assert first == bytes_of(workload.arrivals(WORKFLOWS, seed=5))
    assert first == bytes_of(workload.arrivals(WORKFLOWS, seed=np.random.SeedSequence(5)))


@pytest.mark.parametrize("case", LEFT_TO_CHANCE)
def test_another_seed_gives_other_arrivals(case, folder):
    """Also where the seeds are children of one."""
    workload = build(case, folder)
    seeds = [1, 2, *np.random.SeedSequence(1).spawn(2)]
    extent = Extent(requests=50)
    firsts = {
        collected(workload.arrivals(WORKFLOWS, seed=seed, extent=extent))[0].tobytes()
        for seed in seeds
    }
    assert len(firsts) == len(seeds)


@pytest.mark.slow
def test_mean_rates_are_kept(workload):
    """Over the whole of a workload that ends, and over many requests of one that does not."""
    unlimited = workload.name in FROM_FILES
    extent = Extent() if unlimited else Extent(requests=600_000)
    if workload.name == "generated":
        extent = Extent(duration_ms=86_400_000.0, requests=20_000_000)
        workload = workload.model_copy(update={"rate_rps": 10.0})
    times_ms, indices = collected(workload.arrivals(WORKFLOWS, seed=1, extent=extent))
    ends_s = {"azure": 240.0, "log": 240.0, "generated": 86_400.0}
    seconds = ends_s.get(workload.name, times_ms[-1] / 1000)
    rates = workload.mean_rate_rps(WORKFLOWS)
    assert tuple(rates) == WORKFLOWS
    for index, rate_rps in enumerate(rates.values()):
        count = int((indices == index).sum())
        # Bursts: 60 to 300 cycles in all, each with as many requests as its length has it.
        tolerance = 0.2 if workload.name == "bursts" else 0.03
        assert count / seconds == pytest.approx(rate_rps, rel=tolerance, abs=0.002)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in PARAMETERS if case != "requests"])
def test_memory_is_flat(case, folder):
    """Ten times the requests, the same peak, or one below what matters."""
    workload = build(case, folder)

    def peak_bytes(requests):
        arrivals = workload.arrivals(WORKFLOWS, seed=1, extent=Extent(requests=requests))
        tracemalloc.start()
        try:
            for _ in arrivals.chunks():
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_bytes(1_000_000) < max(1.3 * peak_bytes(100_000), 6e6)


@pytest.mark.parametrize("name", ["requests", "duration_ms"])
@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_an_extent_is_more_than_nothing(name, limit):
    """No request, or no time, is no run."""
    with pytest.raises(ValueError, match=rf"{name} is {limit}; it must be more than 0"):
        Extent(**{name: limit})


def test_there_must_be_a_workflow(workload):
    """Arrivals of nothing, and rates of nothing, are refused."""
    for ask in (lambda: workload.arrivals((), seed=1), lambda: workload.mean_rate_rps(())):
        with pytest.raises(DocumentError, match="there is no workflow; give at least one"):
            ask()
