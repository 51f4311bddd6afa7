"""Environment pollux: progress by goodput, restarts, and errors of its files."""

import shutil

import pytest

from scheduler.model.document_reader import DocumentError
from studies.training.cluster import TrainingCluster
from studies.training.engine import simulate_jobs
from studies.training.environments.pollux import PolluxEnvironment, PolluxEnvironmentParameters
from studies.training.environments.pollux_files import LIMITS, read_model, read_workload
from studies.training.environments.pollux_models import canonical
from tests.data_of_others import DATA, needs_data
from tests.studies.training.harness import MODELS, Scripted, pollux_job

HEADER = "name,time,application,num_replicas,batch_size\n"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((4, 2), (2, 4)), ((1, 4, 2), (1, 4, 2)), ((4, 2, 1), (1, 4, 2)), ((0, 3, 0), (3,))],
)
def test_rotations_of_a_placement_share_their_measurements(counts, expected):
    """The ring of GPUs is the same wherever it begins; nodes without GPUs do not count."""
    assert canonical(counts) == expected


def test_a_batch_is_divided_among_gpus_and_steps():
    """All GPUs together process the requested batch, and a lone GPU accumulates."""
    job = pollux_job(model="generated-small", batch=256)
    assert job.divided(256, 1) == (128, 1)  # above the initial batch: two steps at least
    assert job.divided(256, 3) == (86, 0)
    assert job.divided(1024, 1) == (512, 1)
    assert pollux_job(batch=64).divided(64, 1) == (64, 0)


def test_a_restart_costs_its_seconds_once_per_change_of_nodes():
    """Other GPUs of the same nodes are no restart; other nodes are."""

    def run(later):
        placements = {0: (0, 1)}
        environment = PolluxEnvironment(
            PolluxEnvironmentParameters(), [pollux_job(gpus=2)], TrainingCluster.uniform(2, 4)
        )
        calls = iter(range(10_000))
        return simulate_jobs(
            environment,
            Scripted(lambda _: {"job": placements[0] if next(calls) == 0 else later}),
            "x",
        ).jobs[0]

    same, neighbours, moved = run((0, 1)), run((2, 3)), run((4, 5))
    assert (same.restarts, neighbours.restarts, moved.restarts) == (0, 0, 1)
    assert neighbours.end_s == same.end_s
    assert moved.end_s == same.end_s + 30


def test_a_single_job_takes_what_its_tables_say():
    """The completion time is first round, restart and epochs at the measured speed."""
    environment = PolluxEnvironment(
        PolluxEnvironmentParameters(), [pollux_job(batch=64)], TrainingCluster.uniform(1, 1)
    )
    (job,) = simulate_jobs(environment, Scripted({"job": (0,)}), "x").jobs
    table = MODELS["generated-small"]
    step_s, _ = table.step_s((1,), 64)
    expected_s = 60 + 30 + step_s * table.progress_count(table.limits.epochs)
    assert job.end_s == pytest.approx(expected_s, abs=table.limits.epochs)  # whole seconds an epoch


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,x,bert,1,12\n", "line 2: column time: 'x' is no number of at least 0"),
        ("a,0,bert,0,12\n", "line 2: column num_replicas: '0' is no whole number"),
        ("a,0,gpt,1,12\n", "line 2: column application: there is no model 'gpt'"),
        (
            "a,0,bert,1,12\na,5,bert,1,12\n",
            "line 3: column name: 'a' is the name of line 2 already",
        ),
        ("a,0,bert,1\n", "line 2: has 4 values for 5 columns"),
        ("", "the file: has no job below the columns' names"),
    ],
)
def test_a_wrong_row_is_reported_with_file_line_and_column(tmp_path, rows, message):
    """Nothing is skipped silently."""
    file = tmp_path / "workload.csv"
    file.write_text(HEADER + rows, encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        read_workload(file, list(LIMITS))
    assert str(raised.value).startswith(f"{file}: {message}")


@needs_data
def test_a_wrong_cell_of_a_measured_model_is_reported(tmp_path):
    """Tables of a model are checked like workloads."""
    for folder in ("traces/pollux", "training/pollux/traces"):
        (tmp_path / folder).mkdir(parents=True)
        for file in (DATA / folder).glob("bert-*"):
            shutil.copyfile(file, tmp_path / folder / file.name)
    assert read_model(tmp_path, "bert").largest_batch == 384
    file = tmp_path / "traces/pollux/bert-placements.csv"
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[2] = "1,4,nan,0.1"
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DocumentError, match="line 3: column step_time: 'nan' is no number"):
        read_model(tmp_path, "bert")


def test_a_folder_without_models_is_reported(tmp_path):
    """The message names the folder and the option."""
    with pytest.raises(DocumentError, match=r"has no bert-validation-….csv; name its parent"):
        read_model(tmp_path, "bert")
