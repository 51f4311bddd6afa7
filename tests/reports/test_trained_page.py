"""Page of training runs: names of runs, and figures that nothing overlaps or cuts off."""

import re

import pytest

from studies.training.command.report import run_names
from studies.training.runs.setup import JobsSetup
from workbench.reports.drawing import house_style
from workbench.reports.trained import TrainedRun
from workbench.reports.trained_figures import completion_times_figure

WIDTH = 720  # of the figure's view box
CHARACTER = 5.0  # narrowest width of one, in its units


def setup(policy="fifo", seed=0, **settings):
    return JobsSetup(policy=policy, environment="pollux", seed=seed, settings=settings)


def run_of(name):
    return TrainedRun(
        name=name, jobs=1, mean_jct_h=1, p50_jct_h=1, p99_jct_h=1, makespan_h=1, gpu_use_ratio=1,
        restarts=0, jcts_h=[1], gpu_use=[(0.5, 1)], bars=(), gpus=1, node_firsts=(0,),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("length", [4, 20, 45, 80])
def test_a_legend_of_long_names_is_not_cut_off(length):
    """Names stand within the figure, in as many columns as fit."""
    names = [f"{number}".ljust(length, "n") for number in range(6)]
    with house_style():
        svg = completion_times_figure([run_of(name) for name in names], "label")
    entries = re.findall(r'<text[^>]* x="(-?[\d.]+)"[^>]*>(\dn+)</text>', svg)
    assert len(entries) == len(names)
    for start, name in entries:
        assert 0 <= float(start) <= WIDTH - CHARACTER * len(name)


@pytest.mark.parametrize(
    ("setups", "names"),
    [
        ([setup("fifo"), setup("srtf")], ["fifo", "srtf"]),
        ([setup(seed=0), setup(seed=1)], ["fifo, seed 0", "fifo, seed 1"]),
        ([setup(x=1, y=2), setup(x=1, y=3)], ["fifo, y=2", "fifo, y=3"]),
    ],
)
def test_a_name_has_what_differs(setups, names):
    """Policy, and what is not the same in all runs."""
    assert run_names(setups) == names
