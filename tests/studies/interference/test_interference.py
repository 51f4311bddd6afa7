"""The study of docs/interference.md: files in gpulet's form, a fitted model, and its errors."""

from itertools import product

import numpy as np
import pytest

from studies.interference.command import DOCUMENT, cases_of, error_table, neighbour_table
from studies.interference.errors import (
    error_of,
    fitted_model,
    mean_slowdown,
    no_interference,
    own_mean,
    without_model,
    without_pair,
)
from studies.interference.model import SlowdownModel
from studies.interference.pairs import ModelPoint, read_pairs, read_solos
from studies.page import blocks_of
from tests.data_of_others import DATA, needs_data
from workbench.simulation.scenario import Scenario

MODELS, BATCHES, PERCENTS = ("a", "b", "c"), (1, 4, 16), (20, 40, 60, 80)


@pytest.fixture
def folder(tmp_path):
    """Pairs whose slowdown is exp(what both do alone), as the model has it."""
    random = np.random.default_rng(1)
    points = [ModelPoint(*point) for point in product(MODELS, BATCHES, PERCENTS)]
    solos = {point: random.uniform(1.0, 40.0, 3).round(4).tolist() for point in points}

    def write(name, rows):
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        (tmp_path / name).write_text(text, encoding="utf-8")

    write(
        "inference.csv",
        ([*p, "throughput", 1, "latency", solos[p][0] / 1000, 1] for p in points),
    )
    write(
        "mem_util.csv",
        ([*p, "mem_util", solos[p][1], "l2_util", solos[p][2], 0] for p in points),
    )
    pairs = []
    for point, neighbour, batch in product(points, MODELS, BATCHES):
        beside = solos[ModelPoint(neighbour, batch, 100 - point.percent)]
        slowdown = np.exp(0.1 + 0.5 * solos[point][1] / 100 + 0.2 * beside[2] / 100)
        latency_s = slowdown * solos[point][0] / 1000
        pairs.append([*point, neighbour, batch, "throughput", 1, "latency", latency_s, 1])
    unknown = ["d", 1, 20, "a", 1, "throughput", 1, "latency", 1, 1]
    write("interference.csv", [*pairs, unknown])
    return tmp_path


@pytest.fixture
def solos(folder):
    return read_solos(folder)


@pytest.fixture
def pairs(folder, solos):
    return read_pairs(folder, solos)


def test_pairs_have_both_models_alone(pairs, solos):
    """A victim that was not measured alone is left out; both shares are the whole GPU."""
    assert len(pairs) == len(MODELS) ** 2 * len(BATCHES) ** 2 * len(PERCENTS)
    assert {pair.victim.percent + pair.neighbour.percent for pair in pairs} == {100}
    assert all(pair.victim in solos and pair.neighbour in solos for pair in pairs)


def test_the_model_finds_what_made_the_pairs(pairs, solos):
    """Also for pairs, and for victims, that it was not fitted on."""
    for splits in (without_pair(pairs), without_model(pairs)):
        assert error_of(fitted_model, splits, solos).p95_ratio < 1e-6


def test_predictions_without_the_neighbour_have_its_part_as_error(pairs, solos):
    """No interference is worst, then the mean, then the victim's own mean."""
    errors = [
        error_of(fit, without_pair(pairs), solos).median_ratio
        for fit in (no_interference, mean_slowdown, own_mean)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] > 0.001


def test_what_is_held_back_is_not_fitted(pairs):
    """Both directions of a pair are held back together, and each pair once."""
    held = []
    for fitted, held_back in without_pair(pairs):
        models = {frozenset((pair.victim.model, pair.neighbour.model)) for pair in held_back}
        assert len(models) == 1
        assert not models & {frozenset((p.victim.model, p.neighbour.model)) for p in fitted}
        held += held_back
    assert sorted(held) == sorted(pairs)
    for fitted, held_back in without_model(pairs):
        (model,) = {pair.victim.model for pair in held_back}
        assert all(model not in {p.victim.model, p.neighbour.model} for p in fitted)


def test_the_table_is_a_scenarios(pairs, solos):
    """Slowdowns beside the whole GPU; the mildest neighbours slow no run down more than others."""
    table = SlowdownModel.fit(pairs, solos).table(MODELS)
    assert set(table) == set(MODELS) == set(table["a"])
    assert all(ratio > 0.1 for row in table.values() for ratio in row.values())
    scenarios = {name: Scenario(**changes) for name, changes in cases_of(table).items()}
    placed, mildest, worst = (
        scenarios[name].interference
        for name in ("as placed (`defrag`)", "the mildest neighbours", "the worst neighbours")
    )
    for victim, ratios in placed.items():
        for neighbour, ratio in ratios.items():
            assert mildest[victim][neighbour] <= ratio <= worst[victim][neighbour]


def test_tables_have_each_prediction_and_victim(pairs, solos):
    assert len(error_table(pairs, solos).splitlines()) == 2 + 4
    assert len(neighbour_table(pairs).splitlines()) == 2 + len(MODELS)


def test_the_document_has_a_place_for_each_table():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert set(blocks_of(text)) == {"how", "pairs", "errors", "placement"}


@needs_data
def test_gpulets_pairs_are_predicted():
    """The errors of docs/interference.md."""
    folder = DATA / "profiles" / "gpulet"
    solos = read_solos(folder)
    pairs = read_pairs(folder, solos)
    assert (len(solos), len(pairs)) == (420, 3_675)
    error = error_of(fitted_model, without_pair(pairs), solos)
    null = error_of(no_interference, without_pair(pairs), solos)
    assert error.median_ratio < 0.08 < 3 * 0.08 > null.median_ratio > 0.2
