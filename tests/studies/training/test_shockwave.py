"""Jobs that change their batch on the way, and the environment of Shockwave's simulator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from studies.oracles.shockwave import run
from studies.training.cluster import TrainingCluster
from studies.training.environment import WorkloadSource
from studies.training.environments.gavel_throughputs import Throughputs
from studies.training.environments.shockwave import (
    ShockwaveEnvironment,
    ShockwaveJob,
    ShockwaveParameters,
    batch_of,
)
from studies.training.environments.shockwave_files import read_workload, step_rps
from tests.data_of_others import DATA, needs_data
from tests.studies.training.harness import policy, simulated

GOOD = (
    "LM (batch size 10)", "run", "dir", "--steps", "1", "500", "1", "gns", "1", "-1", "50", "7",
)  # fmt: skip


def job_of(name="a", *, mode="static", epochs=2, batch=64, submit_s=0.0):
    steps = epochs * -(-50_000 // batch)
    batches_rps = {batch: 10.0}
    return ShockwaveJob(
        name=name, model="ResNet-18", submit_s=submit_s, gpus=1, steps=steps, weight_ratio=1.0,
        throughputs=Throughputs(10.0, {}), first_batch=batch, batch=batch, mode=mode,
        batches_rps=batches_rps,
    )  # fmt: skip


def environment_of(*jobs, **parameters):
    return ShockwaveEnvironment(
        ShockwaveParameters(**parameters), list(jobs), TrainingCluster.uniform(1, 1)
    )


def test_a_start_costs_part_of_a_whole_round():
    """1,564 steps at 10 a second take 156.4 s alone, and 20 s more."""
    (record,) = simulated("srtf", environment_of(job_of())).jobs
    assert record.end_s == pytest.approx(156.4 + 20, abs=0.2)


def test_a_start_costs_no_more_than_its_round():
    """A restart that is longer than a round takes no step that was done before."""
    (record,) = simulated("srtf", environment_of(job_of(), restart_s=200.0)).jobs
    assert record.end_s == pytest.approx(156.4 + 120, abs=0.2)


@pytest.mark.parametrize(
    ("mode", "batches"),
    [
        ("static", [64] * 5),
        ("accordion", [64, 64, 256, 256, 64]),  # critical up to epoch 9, and from 150 to 159
        ("gns", [64, 64, 128, 256, 256]),
    ],
)
def test_the_batch_follows_the_mode(mode, batches):
    """At the first epoch, the tenth, the eleventh, the 21st and the 151st."""
    assert [batch_of("ResNet-18", mode, 64, epoch) for epoch in (0, 9, 10, 20, 150)] == batches


def test_models_have_critical_epochs_of_their_own():
    """Each decay of ResNet-50, longer beginnings, and Transformers that never change."""
    assert [batch_of("ResNet-50", "accordion", 16, e) for e in (29, 30, 40)] == [128, 16, 128]
    assert batch_of("Recommendation", "accordion", 512, 29) == 512
    assert batch_of("Transformer", "gns", 16, 99) == 16


def test_a_larger_batch_means_fewer_steps_and_the_same_epochs():
    """Samples per second stay, so the time stays but for whole steps and rounds."""
    static, growing = job_of(epochs=40), job_of(epochs=40, mode="gns")
    ends_s = [simulated("srtf", environment_of(job, restart_s=0)).jobs[0].end_s
              for job in (static, growing)]  # fmt: skip
    assert growing.steps < static.steps
    assert growing.done_epoch_count == pytest.approx(40, rel=0.01)
    assert ends_s[1] == pytest.approx(ends_s[0], rel=0.01)
    assert growing.alone_s() == pytest.approx(static.alone_s(), rel=0.01)


def test_an_unknown_batch_has_the_samples_of_the_next_smaller_one():
    """Half the steps at twice the batch."""
    assert [step_rps({16: 8.0, 32: 6.0}, batch) for batch in (8, 16, 64)] == [16.0, 8.0, 3.0]


@pytest.mark.slow
@given(
    seed=st.integers(0, 20),
    name=st.sampled_from(["allox", "gandiva-fair", "themis", "max-min", "srtf"]),
)
def test_every_generated_job_completes_its_epochs(seed, name):
    """No job is lost, and none is faster than alone."""
    environment = ShockwaveEnvironment.load(ShockwaveParameters(), WorkloadSource(seed=seed))
    alone_s = [job.alone_s() for job in environment.jobs]
    for record, time_s in zip(simulated(name, environment).jobs, alone_s, strict=True):
        assert record.jct_s >= 0.98 * time_s  # a batch changes at the end of a round


def test_allox_matches_the_shortest_jobs_and_leaves_them():
    """A matched job of one GPU keeps its share although a shorter one has come."""
    allox, cluster = policy("allox", oldest_ratio=1.0), TrainingCluster.uniform(1, 1)
    long, short = job_of("long", epochs=9), job_of("short", epochs=1)
    assert allox.time_shares(0.0, (long,), cluster) == {"long": 1.0}
    assert allox.time_shares(1.0, (long, short), cluster) == {"long": 1.0, "short": 0.0}
    both = policy("allox", oldest_ratio=1.0).time_shares(0.0, (long, short), cluster)
    assert both == {"long": 0.0, "short": 1.0}


def test_allox_considers_the_oldest_jobs():
    """A half of two waiting jobs is the older one, though it is longer."""
    allox, cluster = policy("allox", oldest_ratio=0.5), TrainingCluster.uniform(1, 1)
    jobs = job_of("old", epochs=9), job_of("new", epochs=1, submit_s=5.0)
    assert allox.time_shares(9.0, jobs, cluster) == {"old": 1.0, "new": 0.0}


def test_gandiva_fair_does_not_count_gpus():
    """Two jobs on one GPU have half of the time each."""
    shares = policy("gandiva-fair").time_shares(
        0.0, (job_of("a"), job_of("b")), TrainingCluster.uniform(1, 1)
    )
    assert shares == {"a": 0.5, "b": 0.5}


def write(tmp_path, row):
    trace = tmp_path / "a.trace"
    trace.write_text("\t".join(row), encoding="utf-8")
    return trace


def test_a_trace_is_read(tmp_path):
    """The throughput of a batch follows from steps and duration."""
    (row,) = read_workload(write(tmp_path, GOOD))
    assert (row.job.model, row.batch, row.mode, row.job.submit_s) == ("LM", 10, "gns", 7.0)
    environment = ShockwaveEnvironment.load(
        ShockwaveParameters(), WorkloadSource(workload=write(tmp_path, GOOD))
    )
    assert environment.jobs[0].throughput_rps() == 10.0


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, "LM", "line 1: column type: 'LM' is no model with '(batch size N)'"),
        (0, "X (batch size 1)", "line 1: column type: 'X (batch size 1)' is no model"),
        (5, "0", "line 1: column steps: '0' is no whole number from 1"),
        (7, "fast", "line 1: column mode: there is no mode 'fast'; there are static"),
        (10, "-1", "line 1: column duration: '-1' is no whole number from 1"),
        (11, "x", "line 1: column arrival: 'x' is no number of at least 0"),
    ],
)
def test_a_wrong_row_of_a_trace_is_reported(tmp_path, column, value, message):
    """Line and column are named."""
    with pytest.raises(DocumentError) as raised:
        read_workload(write(tmp_path, (*GOOD[:column], value, *GOOD[column + 1 :])))
    assert message in str(raised.value)


@needs_data
@pytest.mark.slow
def test_the_published_fairness_of_allox_is_repeated():
    """The worst job of 120 waits five times as long as on its equal part."""
    assert run(DATA, "allox").fairness_ratio == pytest.approx(4.96, rel=0.05)
