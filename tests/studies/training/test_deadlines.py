"""Chronus and EDF: admission, guarantees, placement, and the files of their environment."""

import json
from collections import Counter
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from studies.oracles.chronus import best_admission_score, drawn_requests
from studies.training.cluster import TrainingCluster
from studies.training.engine import simulate_jobs
from studies.training.environment import WorkloadSource
from studies.training.environments.chronus import (
    ChronusEnvironment,
    ChronusEnvironmentParameters,
    LeasedJob,
)
from studies.training.environments.chronus_files import (
    SPREAD_FILE,
    generated_spread,
    read_deadline_rows,
    read_spread,
    speeds_of,
)
from studies.training.job import Deadline, JobPlacement
from studies.training.policies.chronus_admission import (
    LeasePlan,
    LeaseRequest,
    reserve_earliest,
    rounded_gpus,
    solve,
)
from studies.training.policy import JobsState
from tests.studies.training.harness import policy, simulated

SPREAD = generated_spread()
LEASE_S = 1200.0
HEADER = (
    "job_id,num_gpu,submit_time,model_name,duration,expect_time_list,expect_value_list,job_type"
)


def job_of(number, gpus, duration_s, *, submit_s=0.0, deadline_s=inf, model="generated-compute"):
    return LeasedJob(
        name=f"j{number}", model=model, submit_s=submit_s, gpus=gpus, work_count=duration_s,
        deadlines=() if deadline_s == inf else (Deadline(deadline_s),),
        spread_speeds=speeds_of(SPREAD[model], gpus, 8),
    )  # fmt: skip


def environment_of(*jobs, nodes=1, gpus=4):
    return ChronusEnvironment(
        ChronusEnvironmentParameters(), jobs, TrainingCluster.uniform(nodes, gpus)
    )


def generated(seed, load_ratio, nodes=2):
    return ChronusEnvironment.load(
        ChronusEnvironmentParameters(job_count=25, load_ratio=load_ratio),
        WorkloadSource(nodes=nodes, seed=seed),
    )


@given(seed=st.integers(0, 10_000), capacity=st.sampled_from([2, 4, 6]))
def test_the_integer_program_admits_the_best_admission_score(seed, capacity):
    """Brute force over all deadlines and all leases finds no better set."""
    requests = drawn_requests(Random(seed))
    by_name = {request.name: request for request in requests}
    deadlines, leases = solve(requests, 0, capacity, 1000)
    value = sum(by_name[name].options[option][1] for name, option in deadlines.items())
    assert value == best_admission_score(requests, 0, capacity)
    check_leases(deadlines, leases, by_name, capacity)


@given(seed=st.integers(0, 10_000), capacity=st.sampled_from([2, 4, 6]))
def test_a_plan_keeps_what_it_admitted(seed, capacity):
    """Later jobs never take leases that admitted ones need, and no lease is over-booked."""
    plan = LeasePlan(variables_max=4000, nodes_max=1000)
    first = drawn_requests(Random(seed))
    plan.update(0, first, capacity)
    before = set(plan.accepted)
    later = [
        LeaseRequest(f"later-{r.name}", r.gpus, r.needed, r.options)
        for r in drawn_requests(Random(seed + 1))
    ]
    plan.update(0, [*first, *later], capacity)
    assert before <= set(plan.accepted)
    by_name = {request.name: request for request in (*first, *later)}
    check_leases(plan.accepted, plan.leases, by_name, capacity)


def check_leases(accepted, leases, requests, capacity):
    assert accepted.keys() == leases.keys()
    used = {}
    for name, option in accepted.items():
        request = requests[name]
        assert len(leases[name]) == request.needed
        assert max(leases[name]) < request.options[option][0]
        for lease in leases[name]:
            used[lease] = used.get(lease, 0) + request.gpus
    assert all(gpus <= capacity for gpus in used.values())


def test_an_integer_program_admits_where_earliest_leases_do_not():
    """One long job blocks two short ones if it is first; two are worth more than one."""
    requests = [
        LeaseRequest("long", 4, 2, ((2, 1.0),)),
        LeaseRequest("short", 4, 1, ((1, 1.0),)),
        LeaseRequest("other", 4, 1, ((2, 1.0),)),
    ]
    earliest, _ = reserve_earliest({}, {}, requests, 4)
    assert set(earliest) == {"long"}
    plan = LeasePlan(variables_max=4000, nodes_max=1000)
    plan.update(0, requests, 4)
    assert set(plan.accepted) == {"short", "other"}
    too_large = LeasePlan(variables_max=0, nodes_max=1000)
    too_large.update(0, requests, 4)
    assert set(too_large.accepted) == {"long"}


def test_gpus_are_rounded_up_to_a_power_of_two():
    """So that any set of reservations fits on nodes of such sizes."""
    assert [rounded_gpus(gpus) for gpus in (1, 2, 3, 5, 8, 9)] == [1, 2, 4, 8, 8, 16]


def test_an_admitted_job_preempts_best_effort():
    """Best effort fills the cluster until the next lease, and goes on later."""
    strict = job_of(0, 4, 2 * LEASE_S, submit_s=600.0, deadline_s=3 * LEASE_S)
    best = job_of(1, 4, 3 * LEASE_S)
    result = simulated("chronus", environment_of(strict, best))
    assert [job.end_s for job in result.jobs] == [2 * LEASE_S + 600.0, 5 * LEASE_S]
    assert result.deadline_hit_ratio == 1.0


def test_a_job_that_is_too_late_runs_last():
    """EDF runs it first, because its deadline is the earliest."""
    jobs = [job_of(0, 4, 2 * LEASE_S, deadline_s=LEASE_S), job_of(1, 4, LEASE_S)]
    assert [j.end_s for j in simulated("chronus", environment_of(*jobs)).jobs] == [3600.0, 1200.0]
    jobs = [job_of(0, 4, 2 * LEASE_S, deadline_s=LEASE_S), job_of(1, 4, LEASE_S)]
    assert [j.end_s for j in simulated("edf", environment_of(*jobs)).jobs] == [2400.0, 3600.0]


@given(seed=st.integers(0, 200), load_ratio=st.sampled_from([0.5, 1.0, 3.0]))
def test_every_admitted_job_meets_its_deadline(seed, load_ratio):
    """The guarantee holds at any load, and all jobs end."""
    environment = generated(seed, load_ratio)
    chronus = policy("chronus")
    result = simulate_jobs(environment, chronus, "chronus")
    for job in result.jobs:
        if job.name in chronus.accepted:
            assert job.end_s <= job.deadline_s + 1e-6


def test_sensitive_jobs_stay_on_one_node():
    """A job that loses little is spread, so that one that loses much is not."""
    tolerant, sensitive = job_of(0, 2, 1e4), job_of(1, 2, 1e4, model="generated-network")
    first = job_of(2, 1, 1e6)
    first.placement = JobPlacement((0,))
    second = job_of(3, 1, 1e6)
    second.placement = JobPlacement((2,))
    jobs = [first, second, tolerant, sensitive]
    cluster = TrainingCluster.uniform(3, 2)
    decided = policy("chronus").decide(
        JobsState(0.0, jobs, cluster, {"j2": first.placement, "j3": second.placement})
    )
    node_of = cluster.node_of
    assert len(decided) == 4
    assert len({node_of[gpu] for gpu in decided["j1"].gpus}) == 1


@pytest.mark.parametrize("gpus", [9, 12, 13])
def test_a_job_of_any_size_is_placed(gpus):
    """Also a job that is larger than a node and has no equal parts, as equal as they can be."""
    result = simulated("chronus", environment_of(job_of(0, gpus, 600.0), nodes=2, gpus=8))
    assert [job.end_s for job in result.jobs] == [600.0]
    (span,) = result.spans
    assert sorted(Counter(gpu // 8 for gpu in span.gpus).values()) == [gpus // 2, gpus - gpus // 2]


def test_a_spread_job_is_slower():
    """Its pace is that of the number of its nodes; between two known numbers, the slower one."""
    job = job_of(0, 4, 100, model="generated-network")
    assert job.speed_ratio(1) == 1.0
    assert job.speed_ratio(2) == 0.7
    assert job.speed_ratio(3) == job.speed_ratio(4) == pytest.approx(0.4)
    environment = environment_of(job, nodes=2, gpus=2)
    assert simulated("edf", environment).jobs[0].jct_s == pytest.approx(100 / 0.7)


def test_speeds_of_large_and_small_jobs():
    """Speed is 1 on the fewest nodes; jobs larger than a node lose as one of a node's size."""
    table = SPREAD["generated-network"]
    assert speeds_of(table, 1, 8) == {1: 1.0}
    assert speeds_of(table, 16, 8) == {2: 1.0, 4: 0.7, 8: pytest.approx(0.4)}
    assert speeds_of({}, 4, 8) == {1: 1.0}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,1,0,net,5,9,1,urgent", "column job_type: 'urgent' is neither strict nor best"),
        ("a,1,0,net,5,9-12,1,strict", "column expect_value_list: has 1 values, not 2"),
        ("a,1,0,net,5,soon,1,strict", "column expect_time_list: 'soon' is no list of whole numb"),
        ("a,1,0,gpt,5,9,1,strict", "column model_name: there is no model 'gpt'; there are net"),
        ("a,x,0,net,5,9,1,strict", "column num_gpu: 'x' is no whole number"),
    ],
)
def test_a_wrong_row_is_reported_with_file_line_and_column(tmp_path, row, message):
    """No row is skipped."""
    file = tmp_path / "trace.csv"
    file.write_text(f"{HEADER}\n{row}\n", "utf-8")
    with pytest.raises(DocumentError) as raised:
        read_deadline_rows(file, ["net"])
    assert f"{file}: line 2: {message}" in str(raised.value)


def test_a_trace_is_read_in_seconds(tmp_path):
    """Minutes become seconds, deadlines are absolute and in order, and no GPU counts as one."""
    file = tmp_path / "trace.csv"
    file.write_text(f"{HEADER}\na,0,10,net,5,9-7,1-2,strict\nb,2,0,net,1,0,1,best\n", "utf-8")
    first, second = read_deadline_rows(file, ["net"])
    assert first.job[1:] == (600.0, "net", 1, 300.0)
    assert first.deadlines == (Deadline(1020.0, 2.0), Deadline(1140.0, 1.0))
    assert second.deadlines == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the file: Invalid JSON"),
        ("[]", "line 1: column 1: Input should be an object"),
        ('{"net": {"2": {"1": 0}}}', "line 1: column 16: net: 2: 1: Input should be greater than"),
        ('{"net":\n {"2": 1}}', "line 2: column 3: net: 2: Input should be"),
    ],
)
def test_a_wrong_table_of_speeds_is_reported(tmp_path, text, message):
    """The file, the place and the entry are named."""
    file = tmp_path / SPREAD_FILE
    file.parent.mkdir(parents=True)
    file.write_text(text, "utf-8")
    with pytest.raises(DocumentError) as raised:
        read_spread(tmp_path)
    assert f"{file}: {message}" in str(raised.value)
    file.write_text(json.dumps({"net": {"2": {"1": 1.0, "2": 0.5}}}), "utf-8")
    assert read_spread(tmp_path) == {"net": {2: {1: 1.0, 2: 0.5}}}
