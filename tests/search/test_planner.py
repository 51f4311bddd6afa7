"""Plans in cases that can be checked by hand."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from math import inf, isclose, nan
from pkgutil import walk_packages

import pytest

from scheduler import search
from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import FunctionProfile, GridPoint
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.plan import Plan, Prices
from scheduler.search.planner import Planner, PlanningError, PlanRequest, Rules, prepare
from tests.search.factories import CHAIN, catalogue
from tests.search.harness import plan_request, point
from workbench.profiles.builders import profile, workflow

# One vCPU for one second is one cent.
ONE_CENT = Rules(prices=Prices(vcpu_hour_dollars=36.0, gpu_hour_dollars=0.0))
ROWS = [
    (1, 1, 10, 100.0),
    (1, 2, 20, 60.0),
    (2, 1, 10, 150.0),
    (4, 4, 50, 120.0),
    (8, 4, 100, 200.0),
]


def _planner(**settings: str) -> Planner:
    return Planner(catalogue(CHAIN[:2], [ROWS, ROWS]), replace(ONE_CENT, **settings))  # type: ignore[arg-type]


def _function(**fields: object) -> PlanRequest:
    return plan_request(workflow=None, stage="f0", **fields)


def _points(plan: Plan) -> list[tuple[int, int, int]]:
    return [point(candidate) for candidate in plan.candidates]


def test_a_function_alone_is_planned_by_cost() -> None:
    """Without a workflow and a deadline there is no budget, and the cheapest is first."""
    plan = _planner().plan(_function(k=3))
    assert plan.feasible
    assert plan.budget_ms is None
    assert _points(plan) == [(2, 1, 10), (1, 1, 10), (8, 4, 100)]
    assert [c.path_cost_dollars for c in plan.candidates] == pytest.approx([0.00075, 0.001, 0.001])


def test_equal_costs_are_ordered_by_time_then_share() -> None:
    """Equal costs are ordered by time, then by GPU share, vCPUs and batch."""
    rows = [(2, 1, 50, 100.0), (1, 1, 20, 50.0), (2, 1, 20, 100.0), (4, 2, 20, 100.0)]
    planner = Planner(Catalogue.of([profile("f0", rows)]), ONE_CENT)
    plan = planner.plan(_function())
    assert _points(plan) == [(1, 1, 20), (2, 1, 20), (4, 2, 20), (2, 1, 50)]


def test_equal_candidates_are_ordered_by_model() -> None:
    """The name decides between GPU models with equal profiles and prices."""
    rows = [(1, 1, 20, 50.0)]
    planner = Planner(Catalogue.of([profile("f0", {"b": rows, "a": rows})]), ONE_CENT)
    assert [c.gpu_model for c in planner.plan(_function()).candidates] == ["a", "b"]


def test_a_deadline_for_a_function_alone() -> None:
    """A slack also limits a function without a workflow."""
    plan = _planner().plan(_function(slack_ms=110.0))
    assert _points(plan) == [(1, 1, 10), (1, 2, 20)]
    assert plan.budget_ms == 110.0


def test_the_path_is_the_best_completion() -> None:
    """A candidate's path is its own time and cost plus the cheapest completion that fits."""
    plan = _planner().plan(plan_request(slack_ms=250.0, k=2))
    assert _points(plan) == [
        (1, 1, 10),
        (2, 1, 10),
    ]  # each is followed by the configuration of the other one
    assert [candidate.stage_ms for candidate in plan.candidates] == [100.0, 150.0]
    for candidate in plan.candidates:
        assert candidate.path_ms == 250.0
        assert isclose(candidate.path_cost_dollars, 0.001 + 0.00075)


@pytest.mark.parametrize("slack_ms", [0.0, -5.0, 119.9, -inf])
def test_a_lost_slo_is_reported(slack_ms: float) -> None:
    """If nothing fits, the plan lists the cheapest, or by a setting the fastest."""
    fastest = _planner(on_lost_slo="fastest").plan(plan_request(slack_ms=slack_ms, k=2))
    cheapest = _planner().plan(plan_request(slack_ms=slack_ms, k=2))
    assert not fastest.feasible
    assert not cheapest.feasible
    assert _points(fastest) == [(1, 2, 20), (1, 1, 10)]
    assert [c.path_ms for c in fastest.candidates] == [120.0, 160.0]
    assert _points(cheapest) == [(2, 1, 10), (1, 1, 10)]
    assert isclose(cheapest.candidates[0].path_cost_dollars, 2 * 0.00075)


def test_an_exact_and_an_infinite_slack() -> None:
    """A budget that is met to the last bit is met, and an infinite one is no limit."""
    assert _planner().plan(plan_request(slack_ms=120.0)).feasible
    assert _points(_planner().plan(plan_request(slack_ms=inf, k=1))) == [(2, 1, 10)]


def test_queued_limits_the_batch() -> None:
    """No batch exceeds the queue; if none is that small, the smallest one is used."""
    planner = _planner()
    assert _points(planner.plan(_function(queued=1))) == [(1, 1, 10), (1, 2, 20)]
    assert _points(planner.plan(_function(queued=0))) == [(1, 1, 10), (1, 2, 20)]
    large = Planner(Catalogue.of([profile("f0", [(8, 1, 10, 1.0), (4, 1, 10, 1.0)])]), ONE_CENT)
    assert _points(large.plan(_function(queued=3))) == [(4, 1, 10)]


def test_ceilings_limit_only_the_current_stage() -> None:
    """Later stages may exceed the ceilings of the current stage."""
    plan = _planner().plan(plan_request(cpu_max=1, gpu_percent_max=10, slack_ms=160.0))
    assert _points(plan) == [(1, 1, 10)]
    assert plan.candidates[0].path_ms == 160.0


def test_rate_adds_the_time_to_fill_a_batch() -> None:
    """At 20 requests per second a batch of 2 waits 50 ms for its second request."""
    plan = _planner().plan(_function(rate_rps=20.0))
    waits = {point(c): c.stage_ms - c.configuration.latency_ms for c in plan.candidates}
    assert waits == pytest.approx({(4, 4, 50): 150.0, (8, 4, 100): 350.0})
    assert plan.feasible


def test_a_rate_that_no_configuration_serves() -> None:
    """The plan is infeasible, states the maximum and lists the highest throughput first."""
    plan = _planner().plan(_function(rate_rps=1000.0, k=3))
    assert not plan.feasible
    assert _points(plan) == [(8, 4, 100), (4, 4, 50), (1, 2, 20)]


def test_a_rate_that_no_gpu_model_serves() -> None:
    """The highest throughput is also first over several GPU models."""
    slow = [(batch, cpu, percent, 1.5 * ms) for batch, cpu, percent, ms in ROWS]
    planner = Planner(Catalogue.of([profile("f0", {"slow": slow, "fast": ROWS})]), ONE_CENT)
    plan = planner.plan(_function(rate_rps=1000.0, k=3))
    assert not plan.feasible
    assert [(c.gpu_model, point(c)) for c in plan.candidates] == [
        ("fast", (8, 4, 100)),
        ("fast", (4, 4, 50)),
        ("slow", (8, 4, 100)),
        ("slow", (4, 4, 50)),
        ("fast", (1, 2, 20)),
        ("slow", (1, 2, 20)),
    ]


def test_threads_may_share_a_planner() -> None:
    """Stages that several threads prepare at once have one plan."""
    planner = _planner()
    with ThreadPoolExecutor(8) as pool:
        plans = list(pool.map(planner.plan, [plan_request(), plan_request(stage="s1")] * 50))
    assert (
        plans == [_planner().plan(plan_request()), _planner().plan(plan_request(stage="s1"))] * 50
    )


def test_ceilings_that_leave_nothing() -> None:
    """The error names the ceilings and the smallest configuration."""
    with pytest.raises(PlanningError) as error:
        _planner().plan(plan_request(cpu_max=0, gpu_percent_max=5, memory_mib_max=10))
    assert str(error.value) == (
        "no configuration of f0 within 0 vCPU, 5 % GPU, 10 MiB GPU memory; "
        "its smallest is 1 vCPU, 10 % GPU, 100 MiB GPU memory (batch 1)"
    )


def test_one_configuration_alone() -> None:
    """A requested configuration is the only candidate, in time or not, whatever is queued."""
    requested = GridPoint(batch=4, cpu=4, gpu_percent=50)
    for slack_ms in (1000.0, 1.0):
        request = plan_request(configuration=requested, slack_ms=slack_ms, queued=1)
        plan = _planner().plan(request)
        assert _points(plan) == [(4, 4, 50)]
        assert plan.feasible is (slack_ms == 1000.0)


def test_a_configuration_without_a_profile() -> None:
    """The error names the nearest configuration on each GPU model."""
    requested = GridPoint(batch=4, cpu=3, gpu_percent=60)
    with pytest.raises(PlanningError) as error:
        _planner().plan(plan_request(configuration=requested))
    assert str(error.value) == (
        "function f0 has no configuration (batch 4, 3 vCPU, 60 % GPU) in its profile; the nearest "
        "is (batch 4, 4 vCPU, 50 % GPU) on gpu: request that, or profile it"
    )


def test_a_configuration_above_the_ceilings() -> None:
    """The error names both."""
    requested = GridPoint(batch=4, cpu=4, gpu_percent=50)
    with pytest.raises(PlanningError) as error:
        _planner().plan(plan_request(configuration=requested, cpu_max=2))
    assert str(error.value) == (
        "the configuration (batch 4, 4 vCPU, 50 % GPU) of f0 exceeds the pod's ceilings (2 vCPU); "
        "raise the requests and limits of its container, or request a smaller one"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"k": 0}, "k is 0"),
        ({"rate_rps": 0.0}, "rate is 0.0"),
        ({"rate_rps": nan}, "rate is nan"),
        ({"slack_ms": nan}, "slack_ms is not a number"),
        (
            {"fleet": FleetCapacity.of_models(["other"])},
            "profiled on gpu, not on other; profile it there",
        ),
        ({"fleet": FleetCapacity(())}, "the cluster has no GPU"),
        ({"starts_ms": ()}, "starts_ms is"),
        ({"starts_ms": (-1.0,)}, "starts_ms is"),
    ],
)
def test_invalid_requests(fields: dict[str, object], message: str) -> None:
    """An invalid request is rejected with the reason."""
    with pytest.raises(PlanningError, match=message):
        _planner().plan(plan_request(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"cpu_max": 10**30, "queued": 10**30},
        {"rate_rps": 5e-324},
        {"rate_rps": 1e-9, "slack_ms": 1e300},
        {"slack_ms": 1e308},
        {"k": 64},
    ],
)
def test_huge_and_tiny_numbers(fields: dict[str, object]) -> None:
    """Extreme numbers do not overflow."""
    plan = _planner().plan(plan_request(**fields))
    assert plan.candidates


def test_unknown_documents() -> None:
    """An unknown workflow, stage, function or profile is named."""
    documents = Catalogue.of([workflow(CHAIN[:2]), profile("f0", ROWS)])
    planner = Planner(documents, ONE_CENT)
    with pytest.raises(UnknownDocumentError, match="workflow default/other is not known"):
        planner.plan(plan_request(workflow="other"))
    with pytest.raises(UnknownDocumentError, match=r"no stage 'sx' \(stages are s0, s1\)"):
        planner.plan(plan_request(stage="sx"))
    with pytest.raises(UnknownDocumentError, match="function f1 has no FunctionProfile"):
        planner.plan(plan_request())
    with pytest.raises(UnknownDocumentError, match="function fx has no FunctionProfile"):
        planner.plan(plan_request(workflow=None, stage="fx"))


def test_profiles_on_unlike_models() -> None:
    """Each stage may run on any model in the cluster; a stage without one is named."""
    documents = catalogue(CHAIN[:2], [{"one": ROWS}, {"two": ROWS}])
    planner = Planner(documents, ONE_CENT)
    plan = planner.plan(plan_request(fleet=FleetCapacity.of_models(["one", "two"])))
    assert {c.gpu_model for c in plan.candidates} == {"one"}
    with pytest.raises(PlanningError, match="stage s1: function f1 is profiled on two"):
        planner.plan(plan_request(fleet=FleetCapacity.of_models(["one"])))


def test_an_expensive_model_has_candidates_of_its_own() -> None:
    """If the cheap GPUs are full, expensive ones remain: there are K candidates on each model."""
    rules = replace(
        ONE_CENT,
        prices=Prices(
            vcpu_hour_dollars=0.0, gpu_hour_dollars=1.0, gpu_hour_dollars_of={"dear": 10.0}
        ),
    )
    rows = {"cheap": ROWS, "dear": ROWS}
    plan = Planner(Catalogue.of([profile("f0", rows)]), rules).plan(_function(k=2))
    assert [
        (c.gpu_model, c.path_cost_dollars > 10 * plan.candidates[0].path_cost_dollars)
        for c in plan.candidates
    ]
    assert [c.gpu_model for c in plan.candidates] == ["cheap", "cheap", "dear", "dear"]
    assert isclose(plan.candidates[2].path_cost_dollars, 10 * plan.candidates[0].path_cost_dollars)


def test_a_cold_start_is_paid_by_faster_stages() -> None:
    """Candidates for nodes that start the stage later still keep the budget."""
    plan = _planner().plan(plan_request(slack_ms=250.0, k=1, starts_ms=(0.0, 40.0, 500.0)))
    assert plan.feasible
    times_ms = [(c.start_ms, c.path_ms) for c in plan.candidates]
    assert [start_ms for start_ms, _ in times_ms] == [0.0, 40.0]
    assert all(path_ms <= 250.0 for _, path_ms in times_ms)
    assert plan.candidates[0].path_cost_dollars <= plan.candidates[1].path_cost_dollars


def test_whole_starts_are_times_like_any() -> None:
    """A kernel reads its arguments as the types of its signature."""
    whole = _planner().plan(plan_request(slack_ms=250.0, starts_ms=(0, 40)))
    assert whole == _planner().plan(plan_request(slack_ms=250.0, starts_ms=(0.0, 40.0)))


def test_a_lost_slo_permits_any_node() -> None:
    """If no start is fast enough, the candidates are for the slowest start."""
    plan = _planner().plan(plan_request(slack_ms=10.0, starts_ms=(5.0, 40.0)))
    assert not plan.feasible
    assert {c.start_ms for c in plan.candidates} == {40.0}
    assert plan.message == (
        "the SLO is lost: 10.0 ms left, and the fastest completion takes 125.0 ms; "
        "the cheapest come first"
    )


def test_the_95th_percentile_where_there_is_one() -> None:
    """Times use the percentile, or its largest ratio; costs and throughput use the mean."""
    document = profile("f0", [(1, 1, 10, 100.0), (2, 1, 10, 120.0)]).model_dump(by_alias=True)
    document["spec"]["gpus"][0]["configurations"][0]["p95Ms"] = 130.0
    documents = Catalogue.of([FunctionProfile.model_validate(document)])
    mean, p95 = (
        Planner(documents, replace(ONE_CENT, latency=latency)).plan(_function(rate_rps=10.0))
        for latency in ("mean", "p95")
    )
    times = {c.configuration.batch: c.stage_ms for c in p95.candidates}
    assert times == {1: 130.0, 2: 256.0}  # 100 ms to fill a batch of 2, and 1.3 times 120
    assert {c.configuration.batch: c.stage_ms for c in mean.candidates} == {1: 100.0, 2: 220.0}
    assert [c.path_cost_dollars for c in mean.candidates] == [
        c.path_cost_dollars for c in p95.candidates
    ]


def test_fastest_time() -> None:
    """The fastest end-to-end time is the longest path with each stage at its fastest."""
    assert _planner().fastest_ms("default", "w") == 120.0
    fork = catalogue([[], [], [0, 1]], [ROWS, [(1, 1, 1, 90.0)], ROWS])
    assert Planner(fork, ONE_CENT).fastest_ms("default", "w") == 150.0


def test_changes_of_the_catalogue_are_applied() -> None:
    """A changed document changes the plans that depend on it; the rest is reused."""
    profiles = {name: profile(name, ROWS) for name in ("f0", "f1")}
    workflows = {("default", "w"): workflow(CHAIN[:2])}
    planner = Planner(Catalogue(workflows, profiles), ONE_CENT)
    before = planner.plan(plan_request())
    alone = planner.plan(_function())
    tables = planner.stage(_function()).tables
    faster = [(batch, cpu, percent, ms / 2) for batch, cpu, percent, ms in ROWS]
    profiles["f1"] = profile("f1", faster)
    planner.discard(workflows=workflows, functions=["f1"])
    assert planner.plan(plan_request()).candidates[0].path_ms < before.candidates[0].path_ms
    assert planner.stage(plan_request()).tables == planner.stage(_function()).tables == tables
    profiles["f0"] = profile("f0", faster)
    planner.discard(workflows=workflows, functions=["f0"])
    assert planner.plan(_function()).candidates[0].path_ms < alone.candidates[0].path_ms
    workflows["default", "w"] = workflow(CHAIN[:2], slo_ms=130.0)
    planner.discard(workflows=workflows)
    assert planner.plan(plan_request()).budget_ms == 130.0
    del profiles["f1"]
    planner.discard(workflows=workflows, functions=["f1"])
    with pytest.raises(UnknownDocumentError, match="f1"):
        planner.plan(plan_request())


def test_prepared_data_are_of_one_state_of_the_documents() -> None:
    """A workflow in preparation has the profiles of its beginning until it is discarded."""
    profiles = {name: profile(name, ROWS) for name in ("f0", "f1")}
    workflows = {("default", "w"): workflow(CHAIN[:2])}
    planner = Planner(Catalogue(workflows, profiles), ONE_CENT)
    expected = Planner(Catalogue(workflows, dict(profiles)), ONE_CENT).plan(plan_request())
    in_preparation = planner.workflow("default", "w")
    profiles["f1"] = profile("f1", [(1, 1, 10, 1.0)])
    assert in_preparation.fastest_ms() == 120.0
    planner.discard(workflows=workflows, functions=["f1"])
    assert planner.workflow("default", "w") is not in_preparation
    assert planner.plan(plan_request()) != expected


@pytest.mark.parametrize("request_", [plan_request(), _function()], ids=["workflow", "function"])
def test_preparation_of_all_stages(request_: PlanRequest) -> None:
    """A plan finds what was prepared; what cannot be planned is left to the plan to report."""
    planner = _planner()
    prepared = planner.prepared(request_.namespace, request_.workflow, request_.stage)
    assert not prepared.is_prepared(None)
    prepared.prepare(None)
    assert prepared.is_prepared(None)
    assert planner.stage(request_) is planner.stage(request_)
    assert planner.plan(request_) == _planner().plan(request_)
    others = FleetCapacity.of_models(["other"])
    prepared.prepare(others)
    assert prepared.is_prepared(others)
    with pytest.raises(PlanningError, match="not on other"):
        planner.plan(replace(request_, fleet=others))


def test_planning_is_deterministic() -> None:
    """A plan is a function of the documents and the request."""
    assert _planner().plan(plan_request()) == _planner().plan(plan_request())


def test_effort_is_reported() -> None:
    """Each configuration of the current stage is expanded, cut by time or cut by cost."""
    plan = _planner().plan(plan_request(slack_ms=170.0, k=1))
    effort = plan.effort
    assert effort.expanded + effort.cut_by_time + effort.cut_by_cost == len(ROWS)
    assert effort.cut_by_time > 0


def test_prepare_runs_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """No first request waits for one: each that the planner's modules call is called."""
    called = set()

    def recording(kernel: Callable[..., object]) -> Callable[..., object]:
        def record(*arguments: object) -> object:
            called.add(kernel)
            return kernel(*arguments)

        return record

    names = (m.name for m in walk_packages(search.__path__, prefix=f"{search.__name__}."))
    callers = [import_module(name) for name in names if not name.endswith("kernels")]
    uses = [
        (caller, name, value)
        for caller in callers
        for name, value in vars(caller).items()
        if callable(value) and getattr(value, "__module__", "").endswith("kernels")
    ]
    for caller, name, kernel in uses:
        monkeypatch.setattr(caller, name, recording(kernel))
    prepare.__wrapped__()  # another test may have called it
    assert called == {kernel for _, _, kernel in uses}
    assert len(called) >= 8


def test_a_stage_has_the_slack_of_the_request_or_the_workflow_s() -> None:
    """Without a request's own, a later stage has the part of the SLO that is left from it on."""
    planner = _planner()
    first, second = (planner.stage(plan_request(stage=stage)) for stage in ("s0", "s1"))
    assert [stage.slack_ms(50.0) for stage in (first, second)] == [50.0, 50.0]
    assert first.slack_ms(None) == first.slo_ms
    assert 0 < second.slack_ms(None) < second.slo_ms
