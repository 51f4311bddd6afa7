"""The choice of a pod and a batch is the best plan of all that the pods can run."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.batching import row_dollars
from scheduler.dispatch.choice import Batches, PodOption, in_time
from scheduler.dispatch.pods import Pod, Share
from scheduler.dispatch.run_times import Correction
from scheduler.dispatch.share_classes import ShareClass
from scheduler.dispatch.warm_plans import WarmPlans
from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import GridPoint
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from tests.dispatch.harness import SPACE
from workbench.profiles.builders import GPU, profile, workflow

ROWS = [
    (batch, cpu, percent, 80 * batch**0.6 / (percent / 20) ** 0.7 / cpu**0.1)
    for batch in (1, 2, 4, 8)
    for cpu, percent in ((1, 20), (2, 20), (2, 40), (4, 80))
]
SHARES = [Share(GPU, cpu, percent, 800) for cpu, percent in ((1, 20), (2, 20), (2, 40), (4, 80))]
PROFILES = [profile("f0", ROWS), profile("f1", ROWS)]
CHAIN = workflow([[], [0]], slo_ms=400.0)


@given(
    containers=st.lists(
        st.tuples(st.sampled_from(SHARES), st.sampled_from([0.0, 5.0, 60.0])),
        min_size=1,
        max_size=8,
    ),
    queued=st.integers(1, 9),
    slack_ms=st.floats(20.0, 900.0),
    margin_ratio=st.sampled_from([0.0, 0.1]),
    stage=st.sampled_from(["s0", "s1"]),
)
def test_the_choice_is_the_plans_first_candidate(containers, queued, slack_ms, margin_ratio, stage):
    """Cost and end are the planner's, as long as no later stage is restricted to what is warm."""
    known = {profile.metadata.name: profile for profile in PROFILES}
    plans = WarmPlans({CHAIN.key: CHAIN}, known, Rules())
    places = []
    for number, (share, free_in_ms) in enumerate(containers):
        share_class = ShareClass(share, PROFILES[0], Correction())
        pod = Pod(str(number), (SPACE, "f0"), share)
        dollars = row_dollars(share_class, Rules().prices)
        places.append(PodOption(pod, free_in_ms, share_class.rows, dollars))
    others = plans.stage(CHAIN.key, stage).others
    choice = in_time(
        places, Batches(1, queued), others, slack_ms=slack_ms, margin_ratio=margin_ratio
    )
    planner = Planner(Catalogue.of([CHAIN, *PROFILES]))
    requests = [
        PlanRequest(
            namespace=SPACE,
            workflow="w",
            stage=stage,
            slack_ms=slack_ms / (1.0 + margin_ratio),
            queued=queued,
            configuration=GridPoint(batch=batch, cpu=cpu, gpuPercent=percent),
            starts_ms=(free_in_ms,),
        )
        for share, free_in_ms in containers
        for batch, cpu, percent, _ in ROWS
        if (cpu, percent) == (share.cpu, share.gpu_percent) and batch <= queued
    ]
    plans_in_time = [plan for plan in map(planner.plan, requests) if plan.feasible]
    if plans_in_time:
        path_cost_dollars = min(plan.candidates[0].path_cost_dollars for plan in plans_in_time)
        assert choice is not None
        assert abs(choice.dollars - path_cost_dollars) <= 1e-9 * path_cost_dollars
        assert choice.place.free_in_ms + choice.row.latency_ms <= slack_ms
    elif margin_ratio == 0.0:
        assert choice is None


@given(waiting=st.integers(1, 12), rows_min=st.integers(1, 8))
def test_batches_are_no_larger_than_what_waits(waiting, rows_min):
    """A part with many rows needs a batch as large; nothing else makes one larger than its rows."""
    rows = ShareClass(SHARES[0], PROFILES[0], Correction()).rows
    suiting = [rows[i].batch for i in range(*Batches(rows_min, max(rows_min, waiting)).suit(rows))]
    assert suiting
    assert min(suiting) >= rows_min
    assert all(batch <= max(rows_min, waiting) for batch in suiting[1:])


def test_a_part_of_the_margin_counts_where_all_of_it_does_not_fit():
    """The plan keeps as much of the margin as the fastest completion leaves."""
    share_class = ShareClass(SHARES[0], PROFILES[0], Correction())
    pod = Pod("a", (SPACE, "f0"), SHARES[0])
    places = [PodOption(pod, 0.0, share_class.rows, row_dollars(share_class, Rules().prices))]
    others = (
        WarmPlans({CHAIN.key: CHAIN}, {"f0": PROFILES[0], "f1": PROFILES[1]}, Rules())
        .stage(CHAIN.key, "s1")
        .others
    )
    tight = in_time(places, Batches(1, 1), others, slack_ms=81.0, margin_ratio=0.5)
    assert tight is not None
    assert tight.path_ms == 80.0
    assert in_time(places, Batches(1, 1), others, slack_ms=79.0, margin_ratio=0.5) is None
