"""Shortest job first with and without shared GPUs, and the environment in which jobs share."""

import json
from collections import Counter
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from studies.oracles.sharing import pair, simulated_mean_s
from studies.training.cluster import TrainingCluster
from studies.training.environment import WorkloadSource
from studies.training.environments.gavel_throughputs import THROUGHPUTS_FILE, read_throughputs
from studies.training.environments.paced import PacedParameters
from studies.training.environments.sharing import SharingEnvironment, SharingJob, SharingParameters
from studies.training.environments.sharing_slowdowns import generated_slowdowns, read_slowdowns
from studies.training.job import JobPlacement
from studies.training.policy import JobsState
from studies.training.shared_gpus import mean_sequential_s, mean_together_s
from tests.data_of_others import DATA, needs_data
from tests.studies.training.harness import policy, simulated

POLICIES = ("sjf", "sjf-ffs", "sjf-bsbf")
SLOWDOWNS = generated_slowdowns()
MODELS = sorted({model for model, _ in SLOWDOWNS})
seconds = st.floats(1, 1000)
ratios = st.floats(1, 5)


def job_of(number, model, gpus, duration_s, submit_s=0.0, slowdowns=SLOWDOWNS):
    return SharingJob(
        name=f"j{number}", model=model, submit_s=submit_s, gpus=gpus, work_count=duration_s,
        slowdowns=slowdowns,
    )  # fmt: skip


def environment_of(*jobs, gpus=1, nodes=1, slowdowns=SLOWDOWNS):
    """Each job is (submit, model, GPUs, duration)."""
    built = [
        job_of(number, model, count, duration_s, submit_s, slowdowns)
        for number, (submit_s, model, count, duration_s) in enumerate(jobs)
    ]
    return SharingEnvironment(PacedParameters(), built, TrainingCluster.uniform(nodes, gpus))


def generated(seed, load_ratio=3.0):
    return SharingEnvironment.load(
        SharingParameters(job_count=25, load_ratio=load_ratio), WorkloadSource(seed=seed)
    )


def ends_s(name, environment, **settings):
    return [job.end_s for job in simulated(name, environment, **settings).jobs]


@given(seconds, seconds, ratios, ratios)
def test_the_means_of_a_pair_equal_a_simulation(new_s, running_s, new_ratio, running_ratio):
    """Both closed forms are those of two jobs that are simulated event by event."""
    jobs = pair(new_s, running_s, new_ratio, running_ratio)
    arguments = (new_s, running_s, new_ratio, running_ratio)
    assert mean_together_s(*jobs) == pytest.approx(simulated_mean_s(0.0, *arguments), rel=1e-9)
    assert mean_sequential_s(*jobs) == pytest.approx(
        simulated_mean_s(running_s, *arguments), rel=1e-9
    )


@given(seconds, seconds, ratios, ratios, st.floats(0, 1))
def test_no_start_is_better_than_now_or_the_end(new_s, running_s, new_ratio, running_ratio, part):
    """A start in between has no lower mean than the better of the two."""
    jobs = pair(new_s, running_s, new_ratio, running_ratio)
    best_s = min(mean_together_s(*jobs), mean_sequential_s(*jobs))
    between_s = simulated_mean_s(part * running_s, new_s, running_s, new_ratio, running_ratio)
    assert between_s >= best_s * (1 - 1e-9)


def test_neighbours_slow_one_another_down():
    """Two light jobs share at 1.05 times their run time; the longer one ends alone."""
    light = "generated-light"
    shared = environment_of((0, light, 1, 100), (0, light, 1, 200))
    assert ends_s("sjf-ffs", shared) == pytest.approx([105, 205])
    assert ends_s("sjf", environment_of((0, light, 1, 100), (0, light, 1, 200))) == [100, 300]


def test_a_job_shares_only_if_both_gain():
    """Two heavy jobs of equal length lose by sharing: one waits, unless sharing is always taken."""
    jobs = ((0, "generated-heavy", 1, 100), (0, "generated-heavy", 1, 100))
    assert ends_s("sjf-bsbf", environment_of(*jobs)) == [100, 200]
    assert ends_s("sjf-ffs", environment_of(*jobs)) == pytest.approx([189, 189])


def test_jobs_that_do_not_fit_together_wait():
    """The memory of a GPU is a limit for every policy."""
    for name in POLICIES:
        jobs = ((0, "generated-huge", 1, 100), (0, "generated-huge", 1, 100))
        assert ends_s(name, environment_of(*jobs)) == [100, 200]


def test_a_preempted_job_restarts():
    """Preemption costs the restart's time, a first start costs nothing."""
    jobs = ((0, "generated-huge", 1, 100), (50, "generated-huge", 1, 10))
    result = simulated("srtf", environment_of(*jobs))
    assert [job.end_s for job in result.jobs] == [140, 60]
    assert result.restarts == 1


def test_a_node_of_its_own_is_tried_first():
    """In the consolidated form a job takes the node that it fills best."""
    light = "generated-light"
    running = job_of(0, light, 1, 500)
    running.placement = JobPlacement((0,))
    new = job_of(1, light, 2, 100)
    cluster = TrainingCluster.uniform(2, 2)
    current = {"j0": running.placement}
    state = JobsState(0.0, [running, new], cluster, current)
    best_fit = policy("sjf", consolidated=True).decide(state)
    assert best_fit["j1"].gpus == (2, 3)
    shared = policy("sjf-bsbf", consolidated=True)
    wide = job_of(2, light, 3, 100)
    state = JobsState(0.0, [running, wide], cluster, current)
    assert len(shared.decide(state)["j2"].gpus) == 3


@given(
    new=st.tuples(st.sampled_from(MODELS), seconds),
    running=st.lists(st.tuples(st.sampled_from(MODELS), seconds), min_size=1, max_size=4),
)
def test_the_partner_is_the_best_of_all(new, running):
    """With all GPUs in use, the new job goes where the simulated mean is least, or waits."""
    jobs = [job_of(n, model, 1, duration_s) for n, (model, duration_s) in enumerate(running)]
    for gpu, job in enumerate(jobs):
        job.placement = JobPlacement((gpu,))
    waiting = job_of(len(jobs), new[0], 1, new[1])
    means_s = {}
    for gpu, job in enumerate(jobs):
        slow = SLOWDOWNS[waiting.model, job.model], SLOWDOWNS[job.model, waiting.model]
        if max(slow) < inf:
            pair_s = (waiting.work_count, job.work_count, *slow)
            together_s = simulated_mean_s(0.0, *pair_s)
            if together_s < simulated_mean_s(job.work_count, *pair_s) * (1 - 1e-9):
                means_s[gpu] = together_s
    current = {job.name: job.placement for job in jobs}
    cluster = TrainingCluster.uniform(1, len(jobs))
    decided = policy("sjf-bsbf").decide(JobsState(0.0, [*jobs, waiting], cluster, current))
    if means_s:
        (gpu,) = decided[waiting.name].gpus
        assert means_s[gpu] == pytest.approx(min(means_s.values()))
    else:
        assert waiting.name not in decided


@given(name=st.sampled_from(POLICIES), seed=st.integers(0, 100))
def test_no_job_is_interrupted(name, seed):
    """Every job runs once on the same GPUs, at least for its duration, two on a GPU at most."""
    environment = generated(seed)
    result = simulated(name, environment)
    assert result.restarts == 0
    spans = Counter(span.job for span in result.spans)
    assert set(spans.values()) == {1}
    for job, record in zip(environment.jobs, result.jobs, strict=True):
        assert record.service_gpu_s >= job.work_count * job.gpus * (1 - 1e-9)
        assert name != "sjf" or record.service_gpu_s == pytest.approx(job.work_count * job.gpus)
    for span in result.spans:
        for gpu in span.gpus:
            holders = [
                s for s in result.spans
                if gpu in s.gpus and s.begin_s <= span.begin_s < s.end_s
            ]  # fmt: skip
            assert len(holders) <= 2
    assert 0 < result.gpu_use_ratio <= 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "is no JSON object of GPU models"),
        ('{"v100": 1}', "v100: is no JSON object"),
        ('{"v100": {"x": {}}}', "x is no pair of job type and GPUs"),
        ("""{"v100": {"('a', 1)": {"null": -1}}}""", "null: -1 is no throughput"),
        ("""{"v100": {"('a', 1)": {"null": 1, "('b', 1)": [1]}}}""", "[1] is no pair of throughp"),
    ],
)
def test_a_wrong_table_of_throughputs_is_reported(tmp_path, text, message):
    """The file and the entry are named."""
    file = tmp_path / "throughputs.json"
    file.write_text(text, "utf-8")
    with pytest.raises(DocumentError) as raised:
        read_throughputs(file)
    assert str(file) in str(raised.value)
    assert message in str(raised.value)


def test_huge_jobs_share_with_parts_of_their_batches():
    """Parts of batches fit in memory where whole ones do not, at the cost of an overhead."""
    jobs = ((0, "generated-huge", 1, 100), (0, "generated-light", 1, 100))
    assert ends_s("sjf-ffs", environment_of(*jobs)) == pytest.approx([131.25, 131.25])
    huge = ((0, "generated-huge", 1, 100), (0, "generated-huge", 1, 100))
    divided = environment_of(*huge, slowdowns=generated_slowdowns(4))
    assert ends_s("sjf-ffs", divided) == pytest.approx([2.1945 * 100] * 2)
    assert ends_s("sjf-bsbf", environment_of(*huge, slowdowns=generated_slowdowns(4))) == [100, 200]


@given(st.sampled_from([1, 2, 3, 8]))
def test_only_pairs_that_do_not_fit_divide_their_batches(parts_max):
    """Slow-downs of pairs that fit stay, and a finer division never makes a pair worse."""
    divided, finer = generated_slowdowns(parts_max), generated_slowdowns(2 * parts_max)
    assert divided.keys() == SLOWDOWNS.keys()
    for pair_of_models, ratio in SLOWDOWNS.items():
        assert ratio == inf or divided[pair_of_models] == ratio
        mirrored = pair_of_models[::-1]
        sums = [table[pair_of_models] + table[mirrored] for table in (divided, finer)]
        assert sums[1] <= sums[0]


def test_a_part_has_the_throughput_of_the_smaller_batch(tmp_path):
    """Two batches of 64 do not fit; two of 32 do, and two of them make one of 64."""
    big, small = "('net (batch size 64)', 1)", "('net (batch size 32)', 1)"
    file = tmp_path / THROUGHPUTS_FILE
    file.parent.mkdir(parents=True)
    table = {
        big: {"null": 10.0, big: [0.0, 0.0], small: [0.0, 0.0]},
        small: {"null": 18.0, big: [0.0, 0.0], small: [8.0, 8.0]},
    }
    file.write_text(json.dumps({"v100": table}), encoding="utf-8")
    names = "net (batch size 64)", "net (batch size 32)"
    assert read_slowdowns(tmp_path)[names[0], names[0]] == inf
    divided = read_slowdowns(tmp_path, 2)
    assert divided[names[0], names[0]] == pytest.approx(2 * 10 / 8)
    assert divided[names[0], names[1]] == pytest.approx(2 * 10 / 8)
    assert divided[names[1], names[0]] == divided[names[1], names[1]] == pytest.approx(18 / 8)


@needs_data
def test_measured_pairs_never_gain_speed():
    """Slow-downs of 26 job types are at least 1, and some pairs do not fit."""
    slowdowns = read_slowdowns(DATA)
    assert len(slowdowns) == 26 * 26
    assert min(slowdowns.values()) == 1.0
    assert max(slowdowns.values()) == inf
