"""Nodes that leave and return: jobs on them stop, and policies use those that are present."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from studies.training.cluster import TrainingCluster
from studies.training.engine import simulate_jobs
from studies.training.environment import WorkloadSource
from studies.training.environments.transient import (
    COLUMNS,
    TransientEnvironment,
    TransientParameters,
    read_changes_s,
)
from studies.training.errors import ImpossiblePlacementError
from studies.training.policy import JobsState
from tests.examples import examples
from tests.studies.training.harness import Scripted, policy, pollux_job, simulated

ROUND_S = 60.0
POLICIES = ("bftrainer", "optimus", "tiresias")


def absences(tmp_path, *rows):
    file = tmp_path / "absences.csv"
    file.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n", encoding="utf-8")
    return file


def loaded(seed=0, nodes=5, gpus=4, **parameters):
    return TransientEnvironment.load(
        TransientParameters(**parameters), WorkloadSource(nodes=nodes, gpus=gpus, seed=seed)
    )


@pytest.mark.slow
@examples(3)
@given(name=st.sampled_from(POLICIES), seed=st.integers(0, 100))
def test_every_job_ends_and_none_runs_on_an_absent_node(name, seed):
    """A span ends in the round in which its node leaves."""
    environment = loaded(seed, present_s=1800.0, absent_s=900.0)
    away = {}  # times of absence by node, as a second reading of the same draw
    twin = loaded(seed, present_s=1800.0, absent_s=900.0)
    result = simulated(name, environment)
    now_s = 0.0
    while now_s < result.makespan_s + ROUND_S:
        twin.advance(now_s, now_s + ROUND_S)
        now_s += ROUND_S
        for node in twin.cluster.absent:
            away.setdefault(node, []).append(now_s)
    assert away
    for span in result.spans:
        for gpu in span.gpus:
            times_s = away.get(environment.cluster.node_of[gpu], [])
            assert not any(span.begin_s <= time_s < span.end_s for time_s in times_s)


def test_a_job_restarts_when_its_node_returns(tmp_path):
    """With one node the job waits, and ends later by the absence and a restart."""
    ends_s = []
    for rows in (("0,1e6,2e6",), ("0,100,600",)):
        environment = loaded(nodes=1, gpus=1, absences=absences(tmp_path, *rows))
        environment.jobs = [pollux_job()]
        result = simulated("bftrainer", environment)
        ends_s.append(result.jobs[0].end_s)
    restarted = result.jobs[0]
    assert restarted.restarts == 1
    assert ends_s[1] >= ends_s[0] + 600 - 120
    assert [span.begin_s for span in result.spans] == [60.0, 600.0]


def test_bftrainer_uses_nodes_that_return():
    """It decides again when nodes come, although the jobs are the same."""
    bftrainer = policy("bftrainer", up_s=0.0)
    job = pollux_job()
    nodes = TrainingCluster.uniform(2, 1).nodes
    fewer_nodes = TrainingCluster(nodes, frozenset({1}))
    fewer = bftrainer.decide(JobsState(0.0, [job], fewer_nodes, {}))
    assert fewer["job"].gpus == (0,)
    job.placement = fewer["job"]
    again = bftrainer.decide(JobsState(60.0, [job], fewer_nodes, fewer))
    assert again == fewer
    whole = bftrainer.decide(JobsState(120.0, [job], TrainingCluster(nodes), fewer))
    assert whole["job"].gpus == (0, 1)


def test_a_placement_on_an_absent_node_is_reported(tmp_path):
    """The error names the job and the node."""
    environment = loaded(nodes=2, gpus=1, absences=absences(tmp_path, "1,30,600"))
    environment.jobs = [pollux_job()]
    with pytest.raises(ImpossiblePlacementError, match="job job: GPU 1: node 1 is absent"):
        simulate_jobs(environment, Scripted({"job": (1,)}), "mine")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["3,0,9"], "line 2: column node: '3' is no whole number from 0 to 2"),
        (["0,soon,9"], "line 2: column leave_s: 'soon' is no number"),
        (["0,9,9"], "line 2: column return_s: must be after the node leaves at 9 s"),
        (["0,1,9", "0,5,20"], "line 3: column leave_s: is before the node's return at 9 s"),
        ([], "the file: has no absence"),
    ],
)
def test_a_wrong_absence_is_reported(tmp_path, rows, message):
    """File, line and column are named."""
    file = absences(tmp_path, *rows)
    with pytest.raises(DocumentError) as raised:
        read_changes_s(file, 3)
    assert f"{file}: {message}" in str(raised.value)
