"""Measurements to profiles: what is kept is as it was measured, and is all that a plan needs."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, ProfiledConfiguration, Workflow
from scheduler.model.dominance import point, without_dominated
from scheduler.model.plan import Prices
from scheduler.model.reading import DocumentError, read_documents
from scheduler.search.planner import Planner, PlanningError, PlanRequest
from scheduler.search.rules import Rules
from workbench.profiles.measured_rows import CsvLayout
from workbench.profiles.measurements import ImportRequest, import_measurements

GPU = "NVIDIA A100-SXM4-80GB"
HEADER = "function,batch,cpu,gpu_percent,latency_ms,p95_ms,memory_mib"


def configurations():
    """Few values an axis, so that one often dominates another; points are distinct."""
    latencies_ms = st.sampled_from([0.1, 1 / 3, 1.0, 4.5, 10.0, 20.0, 30.0, 1e5])
    each = st.fixed_dictionaries(
        {
            "batch": st.sampled_from([1, 2, 3, 8]),
            "cpu": st.sampled_from([1, 2]),
            "gpu_percent": st.sampled_from([5, 20, 100]),
            "latency_ms": latencies_ms,
            "p95_ms": st.none() | latencies_ms,
            "memory_mib": st.sampled_from([1000, 1200, 2000]),
        }
    ).map(ProfiledConfiguration.model_validate)
    return st.lists(each, min_size=1, max_size=24, unique_by=point)


def dominates(y, x):
    """The definition, word by word."""
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
def test_what_is_left_out_is_what_is_dominated(measured):
    """As the naive twin: all pairs are compared by the definition."""
    expected = {point(x) for x in measured if not any(dominates(y, x) for y in measured)}
    kept = without_dominated(measured)
    assert expected == {point(x) for x in kept}
    assert kept == sorted(kept, key=point)


def csv(measured, function="f"):
    rows = [
        f"{function},{c.batch},{c.cpu},{c.gpu_percent},{c.latency_ms!r},"
        f"{'' if c.p95_ms is None else repr(c.p95_ms)},{c.memory_mib}"
        for c in measured
    ]
    return "\n".join([HEADER, *rows])


def imported(text):
    request = ImportRequest(layout=CsvLayout(), gpu_model=GPU)
    return import_measurements(text, "folder/measured.csv", request)


@given(configurations())
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


@given(configurations(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(measured, chance):
    """However the rows are shuffled, the same file is written."""
    lines = [*csv(measured, "f").splitlines()[1:], *csv(measured, "g").splitlines()[1:]]
    shuffled = chance.sample(lines, len(lines))
    assert (
        imported("\n".join([HEADER, *lines])).as_yaml()
        == imported("\n".join([HEADER, *shuffled])).as_yaml()
    )


WORKFLOW = Workflow.model_validate(
    {
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {
            "slo": {"latencyMs": 60_000},
            "stages": [
                {"name": "a", "function": "f"},
                {"name": "b", "function": "f", "after": ["a"]},
            ],
        },
    }
)


def best(measured, rules, request):
    """Feasible or not, and the time and the cost of the first candidate; None: there is none."""
    gpu = {"model": GPU, "sparse": True, "configurations": measured}
    profile = FunctionProfile.model_validate({"metadata": {"name": "f"}, "spec": {"gpus": [gpu]}})
    try:
        plan = Planner(Catalogue.of([WORKFLOW, profile]), rules).plan(request)
    except PlanningError:
        return None
    first = plan.candidates[0]
    return plan.feasible, first.path_ms, first.path_cost_dollars


@settings(max_examples=200, deadline=None)  # the first example loads the kernels
@given(
    configurations(),
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
        rate=st.none() | st.sampled_from([1.0, 100.0, 400.0]),
        cpu_max=st.none() | st.just(1),
        gpu_percent_max=st.none() | st.sampled_from([5, 50]),
        memory_mib_max=st.none() | st.sampled_from([1000, 1500]),
    ),
)
def test_no_plan_needs_what_is_left_out(measured, rules, asked):
    """Whatever is asked under whatever rules, the best answer is as good without it."""
    whole = best(measured, rules, asked)
    kept = best(without_dominated(measured), rules, asked)
    if whole is None or kept is None:
        assert whole is kept
        return
    assert whole[0] == kept[0]
    if whole[0]:
        assert kept[2] == pytest.approx(whole[2])  # cheapest within the time
    elif asked.rate is None:
        assert kept[1] == pytest.approx(whole[1])  # the SLO is lost: the fastest


@given(st.integers(2, 4096), st.integers(1, 1024), st.floats(1e-300, 86_400_000.0))
def test_any_number_of_a_document_is_taken(batch, cpu, latency_ms):
    """Whole numbers as 5 or 5.0, times with any exponent, spaces around them."""
    text = f"{HEADER}\nf, {batch}.0 ,{cpu:e},5.,{latency_ms!r},,+2E3"
    configuration = imported(text).profiles[0].spec.gpus[0].configurations[0]
    assert (batch, 5) == (configuration.batch, configuration.gpu_percent)
    assert latency_ms == configuration.latency_ms
    assert configuration.memory_mib == 2000


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_read_or_refused(text):
    """No text ends in anything but documents or problems."""
    for whole in (text, f"{HEADER}\n{text}", f"{HEADER}\nf,1,1,{text},1,1,1"):
        with suppress(DocumentError):
            assert read_documents(imported(whole).as_yaml(), "made.yaml")[1] == []
