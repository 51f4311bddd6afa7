"""Imported profiles have the measured values, and plans need no dominated configuration."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import DocumentError, read_documents
from scheduler.model.documents import FunctionProfile, ProfiledConfiguration
from scheduler.model.plan import Prices
from scheduler.search.planner import Planner, PlanningError, PlanRequest
from scheduler.search.rules import Rules
from tests.examples import examples
from workbench.profiles.builders import graph
from workbench.profiles.dominance import point, without_dominated
from workbench.profiles.measured_rows import CsvLayout, read_rows
from workbench.profiles.measurements import ImportRequest, import_rows

GPU = "NVIDIA A100-SXM4-80GB"
HEADER = "function,batch,cpu,gpu_percent,latency_ms,p95_ms,memory_mib"


ANY_MS = st.sampled_from([0.1, 1 / 3, 1.0, 4.5, 10.0, 20.0, 30.0, 1e5])
PLAUSIBLE_MS = st.sampled_from([20 / 3, 7.0, 8.1, 10.0, 11.5, 13.0])
"""No batch takes less than half of another one's time, which an import refuses."""


def configurations(p95_ratios=(None, 1.0, 1.5, 4.0), latencies_ms=ANY_MS):
    """Draw configurations at distinct points; few values per axis, so that many are dominated."""
    configuration = st.fixed_dictionaries(
        {
            "batch": st.sampled_from([1, 2, 3, 8]),
            "cpu": st.sampled_from([1, 2]),
            "gpu_percent": st.sampled_from([5, 20, 100]),
            "latency_ms": latencies_ms,
            "p95_ms": st.sampled_from(p95_ratios),
            "memory_mib": st.sampled_from([1000, 1200, 2000]),
        }
    ).map(_with_p95)
    return st.lists(configuration, min_size=1, max_size=24, unique_by=point)


def _with_p95(values):
    if values["p95_ms"] is not None:
        values = values | {"p95_ms": values["p95_ms"] * values["latency_ms"]}
    return ProfiledConfiguration.model_validate(values)


def dominates(y, x):
    """Apply the definition literally."""
    return (
        y is not x
        and y.batch <= x.batch
        and y.cpu <= x.cpu
        and y.gpu_percent <= x.gpu_percent
        and y.memory_mib <= x.memory_mib
        and y.latency_ms <= x.latency_ms
        and y.latency_ms / y.batch <= x.latency_ms / x.batch
        and (y.p95_ms is None) == (x.p95_ms is None)
        and (y.p95_ms is None or y.p95_ms <= x.p95_ms)
    )


@given(configurations())
def test_dominated_configurations_are_removed(measured):
    """The result is that of a naive twin, which compares all pairs."""
    expected = {point(x) for x in measured if not any(dominates(y, x) for y in measured)}
    undominated = without_dominated(measured)
    assert expected == {point(x) for x in undominated}
    assert undominated == sorted(undominated, key=point)


def csv(measured, function="f"):
    rows = [
        f"{function},{c.batch},{c.cpu},{c.gpu_percent},{c.latency_ms!r},"
        f"{'' if c.p95_ms is None else repr(c.p95_ms)},{c.memory_mib}"
        for c in measured
    ]
    return "\n".join([HEADER, *rows])


def imported(text):
    request = ImportRequest(layout=CsvLayout(), gpu_model=GPU)
    return import_rows(read_rows(text, "folder/measured.csv", request.layout), request)


@given(configurations(latencies_ms=PLAUSIBLE_MS))
def test_documents_hold_what_was_measured(measured):
    """Documents read back from YAML are valid and have every value to the last digit."""
    done = imported(csv(measured))
    undominated = without_dominated(measured)
    documents, problems = read_documents(done.as_yaml(), "made.yaml")
    assert problems == []
    assert list(done.profiles) == documents
    (gpu,) = documents[0].spec.gpus
    assert undominated == list(gpu.configurations)
    axes = [len({point(c)[axis] for c in undominated}) for axis in range(3)]
    assert gpu.sparse == (len(undominated) < axes[0] * axes[1] * axes[2])


@given(configurations(latencies_ms=PLAUSIBLE_MS), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(measured, rng):
    """Shuffled rows give the same file."""
    lines = [*csv(measured, "f").splitlines()[1:], *csv(measured, "g").splitlines()[1:]]
    shuffled = rng.sample(lines, len(lines))
    assert (
        imported("\n".join([HEADER, *lines])).as_yaml()
        == imported("\n".join([HEADER, *shuffled])).as_yaml()
    )


WORKFLOW = graph({"a": ["f"], "b": ["f", "a"]}, slo_ms=60_000)


def best(measured, rules, request):
    """Return feasibility, time and cost of the first candidate, or None without a plan."""
    gpu = {"model": GPU, "sparse": True, "configurations": measured}
    profile = FunctionProfile.model_validate({"metadata": {"name": "f"}, "spec": {"gpus": [gpu]}})
    try:
        plan = Planner(Catalogue.of([WORKFLOW, profile]), rules).plan(request)
    except PlanningError:
        return None
    first = plan.candidates[0]
    return plan.feasible, first.path_ms, first.path_cost_dollars


@examples(200)  # the first example loads the kernels
@given(
    # All measured or none: a configuration without a p95 has the largest ratio of the others.
    configurations((None,)) | configurations((1.0, 1.5, 4.0)),
    st.builds(
        Rules,
        prices=st.builds(
            Prices,
            vcpu_hour_dollars=st.sampled_from([0.0, 0.034, 50.0]),
            gpu_hour_dollars=st.sampled_from([0.0, 4.69]),
        ),
        latency=st.sampled_from(["mean", "p95"]),
    ),
    st.builds(
        PlanRequest,
        namespace=st.just("default"),
        workflow=st.just("w"),
        stage=st.sampled_from(["a", "b"]),
        slack_ms=st.sampled_from([0.5, 5.0, 15.0, 50.0, 1e6]),
        queued=st.none() | st.sampled_from([1, 2, 5]),
        rate_rps=st.none() | st.sampled_from([1.0, 100.0, 400.0]),
        cpu_max=st.none() | st.just(1),
        gpu_percent_max=st.none() | st.sampled_from([5, 50]),
        memory_mib_max=st.none() | st.sampled_from([1000, 1500]),
    ),
)
def test_no_plan_needs_a_dominated_configuration(measured, rules, request_):
    """For any request and rules, the best plan is as good without dominated configurations."""
    whole = best(measured, rules, request_)
    reduced = best(without_dominated(measured), rules, request_)
    if whole is None or reduced is None:
        assert whole is reduced
        return
    assert whole[0] == reduced[0]
    if whole[0]:
        assert reduced[2] == pytest.approx(whole[2])  # cheapest within the time
    elif request_.rate_rps is None:
        assert reduced[1] == pytest.approx(whole[1])  # the SLO is lost: the fastest


@given(st.integers(2, 4096), st.integers(1, 1024), st.floats(1e-300, 86_400_000.0))
def test_any_valid_number_is_parsed(batch, cpu, latency_ms):
    """Whole numbers as 5 or 5.0, times with any exponent, and spaces are accepted."""
    text = f"{HEADER}\nf, {batch}.0 ,{cpu:e},5.,{latency_ms!r},,+2E3"
    configuration = imported(text).profiles[0].spec.gpus[0].configurations[0]
    assert (batch, 5) == (configuration.batch, configuration.gpu_percent)
    assert latency_ms == configuration.latency_ms
    assert configuration.memory_mib == 2000


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_parsed_or_rejected(text):
    """Every text gives documents or problems."""
    for whole in (text, f"{HEADER}\n{text}", f"{HEADER}\nf,1,1,{text},1,1,1"):
        with suppress(DocumentError):
            assert read_documents(imported(whole).as_yaml(), "made.yaml")[1] == []
