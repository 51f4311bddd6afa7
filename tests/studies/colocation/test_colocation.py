"""Training in the share that inference leaves: who gets what, and what inference notices."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from scheduler.cli.commands import app
from scheduler.ledger.reservation import Reservation
from scheduler.model.catalogue import Catalogue
from studies.colocation.simulation import colocate
from studies.colocation.training_workers import TrainingClass, TrainingWorker
from workbench.profiles.generated import samples
from workbench.simulation.engine import simulate
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import Paper

SAMPLES = Catalogue.of(samples())
KEYS = tuple(sorted(SAMPLES.workflows))
REQUESTS = 250
SHARES = TrainingClass(percents=(100, 50, 25, 10), restart_s=0.5, checkpoint_s=1.0, release_ms=0.0)


def arrivals():
    return Paper(load="light").arrivals(KEYS, seed=np.random.SeedSequence(1))


def run(training, **changes):
    return colocate(
        Scenario(nodes=12, **changes), SAMPLES, arrivals(), training, seed=1, requests=REQUESTS
    )


@pytest.mark.slow
def test_inference_does_not_notice_training():
    """Without interference and with shares freed at once, each number of inference is the same."""
    alone = simulate(Scenario(nodes=12), SAMPLES, arrivals(), "warm", seed=1, requests=REQUESTS)
    assert run(TrainingClass(percents=())).inference == alone
    beside = run(SHARES)
    assert replace(beside.inference, events=0) == replace(alone, events=0)
    assert beside.training.useful_gpu_h > 0


@pytest.mark.parametrize(
    "placement", ["pack", *(pytest.param(p, marks=pytest.mark.slow) for p in ("spread", "defrag"))]
)
def test_every_gpu_second_has_one_holder(placement):
    """Inference, training and free share add up to the cluster; useful time is a part of held."""
    training = run(SHARES, placement=placement).training
    total_gpu_h = training.inference_gpu_h + training.held_gpu_h + training.free_gpu_h
    assert total_gpu_h == pytest.approx(12 * training.hours)
    assert 0 < training.useful_gpu_h < training.held_gpu_h
    assert training.starts >= training.evictions


@pytest.mark.slow
def test_smaller_shares_leave_less_free():
    """Workers that fit in parts of GPUs get what workers of whole GPUs cannot."""
    whole, shares = (run(replace(SHARES, percents=p)).training for p in ((100,), SHARES.percents))
    assert shares.free_gpu_h < whole.free_gpu_h
    assert shares.held_gpu_h > whole.held_gpu_h


@pytest.mark.slow
def test_interference_costs_inference():
    """Neighbours that train make requests slower."""
    alone, beside = (
        run(training, interference_ratio=0.5).inference.latency.mean
        for training in (TrainingClass(percents=()), SHARES)
    )
    assert beside > alone


@pytest.mark.parametrize(
    ("seconds", "is_evicted", "useful_s"),
    [(20, False, 0), (95, False, 65), (95, True, 60), (80, True, 0), (20, True, 0)],
)
def test_a_worker_loses_its_work_since_the_last_checkpoint(seconds, is_evicted, useful_s):
    """Restarts count as nothing, and an eviction costs what is not saved."""
    reservation = Reservation(
        uid="t", namespace="t", name="t", node="n", cpu_milli=0, gpu_uuid="g", gpu_percent=50,
        memory_mib=0, batch=1, function="t",
    )  # fmt: skip
    worker = TrainingWorker(reservation, 0, 1_000.0)
    training = TrainingClass(percents=(50,), restart_s=30.0, checkpoint_s=60.0)
    now_ms = 1_000.0 * (1 + seconds)
    assert worker.useful_ms(now_ms, training, is_evicted=is_evicted) == 1_000.0 * useful_s


DOCUMENT = "a\n<!-- made: how -->\n<!-- /made -->\n<!-- made: results -->\n<!-- /made -->\n"


@pytest.mark.slow
def test_the_command_writes_the_document(tmp_path):
    """A row for each case, between the marks."""
    document = tmp_path / "colocation.md"
    document.write_text(DOCUMENT, encoding="utf-8")
    options = ["--minutes", "0.02", "--setting", "strict-light", "--document", str(document)]
    done = CliRunner().invoke(app, ["colocate", *options])
    assert done.exit_code == 0, done.output
    text = document.read_text(encoding="utf-8")
    assert text.startswith("a\n<!-- made: how -->\nMade by `esg colocate --minutes 0.02 ")
    assert "| strict-light | split cluster |" in text
    assert text.count("| strict-light |") == 7


def test_an_unknown_setting_is_refused(tmp_path):
    """The message lists the settings."""
    document = tmp_path / "colocation.md"
    done = CliRunner().invoke(app, ["colocate", "--setting", "x", "--document", str(document)])
    assert done.exit_code == 1
    assert "no setting 'x'; there are strict-light" in done.output
