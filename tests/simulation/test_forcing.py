"""After three misses the minimum configuration is forced."""

from scheduler.model.catalogue import Catalogue
from tests.simulation.harness import Fixed, Listed, quiet, run
from workbench.profiles.builders import profile, workflow

# A long run holds half of the GPU; the other function wants all of it, and could do with a quarter.
LONG = profile("f0", [(1, 1, 50, 5_000)])
WANTS_ALL = profile("f1", [(1, 1, 25, 80), (1, 1, 100, 20)])
CATALOGUE = Catalogue.of(
    [
        workflow([[]], name="long", slo_ms=9_000, functions=["f0"]),
        workflow([[]], name="short", slo_ms=1_000, functions=["f1"]),
        LONG,
        WANTS_ALL,
    ]
)
KEYS = (("default", "long"), ("default", "short"))


class Greedy(Fixed):
    """The long function's only configuration, and the other one's largest."""

    def candidates(self, question):
        self.choice = {"s0": int(question.key[1] == "short")}
        return super().candidates(question)


def begun(scenario, times_ms):
    """The shares and beginnings of the short workflow's runs."""
    arrivals = Listed([0.0, *times_ms], [0, *(1 for _ in times_ms)], KEYS)
    recording = run(scenario, CATALOGUE, arrivals, Greedy)
    return [
        (span.begin_ms, span.gpu_percent) for span in recording.spans if span.workflow == 1
    ], recording.result


def test_the_third_miss_is_followed_by_the_minimum_configuration():
    """The queue is looked at when each of the three requests joins it, and misses each time."""
    spans, result = begun(quiet(), [100.0, 200.0, 300.0, 400.0])
    # At the fourth look the oldest runs at its minimum; the next look is a first miss again.
    assert spans[0] == (400.0, 25)
    assert result.forced >= 1
    assert result.placement_failures >= 3


def test_looks_in_quick_succession_do_not_force():
    spans, result = begun(quiet(), [100.0, 101.0, 102.0, 103.0])
    assert result.forced == 0
    assert [begin_ms for begin_ms, _ in spans] == [5_000.0, 5_020.0, 5_040.0, 5_060.0]


def test_without_forcing_it_waits_for_the_room_it_wants():
    spans, result = begun(quiet(misses_max=0), [100.0, 200.0, 300.0, 400.0])
    assert result.forced == 0
    assert spans[0] == (5_000.0, 100)
