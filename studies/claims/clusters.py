"""Experiments of the claims about training clusters."""

from collections.abc import Sequence
from pathlib import Path

from studies.claims.claim import ClaimedChange
from studies.claims.training import (
    Cell,
    Figure,
    RivalComparison,
    best_effort_s,
    loads,
    lost_utility_ratio,
    makespan_s,
    mean_jct_s,
    missed_ratio,
    pollux_loads,
    price_dollars,
    sizes,
    trace_sizes,
    worst_fairness_ratio,
)
from studies.oracles.pollux import run as pollux_run

_SHARING = {"nodes": 16, "gpus": 4}
_PublishedFigure = tuple[str, Figure, float]  # its name, and the claimed change


def _by_figure(
    data: Path,
    policies: tuple[str, str],
    environment: str,
    cells: Sequence[Cell],
    *figures: _PublishedFigure,
    at_best: bool = False,
) -> list[ClaimedChange]:
    """Compare a policy and its rival by several figures of the same jobs, with one seed."""
    own, rival = policies
    return [
        RivalComparison(
            own=own,
            rival=rival,
            environment=environment,
            cells=cells,
            figure=figure,
            seeds=(0,),
        ).change(data, what, claimed_ratio, at_best=at_best)
        for what, figure, claimed_ratio in figures
    ]


def tiresias_changes(data: Path) -> list[ClaimedChange]:
    """Compare with FIFO and with known run times."""
    cells = loads(0.5, 1, 2, 4, 8, jobs=240, **_SHARING)
    fifo, srtf = (
        RivalComparison(
            own="tiresias-events",
            rival=rival,
            environment="sharing",
            cells=cells,
            figure=mean_jct_s,
        )
        for rival in ("fifo", "srtf")
    )
    return [
        fifo.change(data, "mean JCT", 1 / 5.5 - 1, at_best=True),
        srtf.change(data, "mean JCT", 0.1),
    ]


def optimus_changes(data: Path) -> list[ClaimedChange]:
    """Compare with tuned jobs."""
    return _by_figure(
        data,
        ("optimus", "tiresias"),
        "pollux",
        pollux_loads(data, "0.5", "1.0", "1.5", "2.0"),
        ("mean JCT", mean_jct_s, 1 / 2.39 - 1),
        ("makespan", makespan_s, 1 / 1.63 - 1),
    )


def pollux_changes(data: Path) -> list[ClaimedChange]:
    """Compare with tuned jobs."""
    job_loads = ("0.5", "1.0")
    own_s = {load: pollux_run(data, "pollux", 6, load).mean_jct_s for load in job_loads}
    return [
        ClaimedChange(
            what=f"mean JCT against {rival}",
            claimed_ratio=-0.37,
            changes_ratio={
                f"load {load}": own_s[load] / pollux_run(data, rival, 6, load).mean_jct_s - 1
                for load in job_loads
            },
        )
        for rival in ("tiresias", "optimus")
    ]


def sjf_bsbf_changes(data: Path) -> list[ClaimedChange]:
    """Compare with preemptive policies, and with sharing whatever fits."""
    cells = loads(0.5, 1, 2, 4, 8, jobs=240, **_SHARING)
    return [
        RivalComparison(
            own="sjf-bsbf", rival=rival, environment="sharing", cells=cells, figure=mean_jct_s
        ).change(data, "mean JCT", claimed_ratio, at_best=at_best)
        for rival, claimed_ratio, at_best in (
            ("tiresias-events", -0.27, False),
            ("srtf", -0.27, False),
            ("sjf-ffs", -0.17, True),
        )
    ]


def qssf_changes(data: Path) -> list[ClaimedChange]:
    """Compare with FIFO and with preemption."""
    cells = pollux_loads(data, "0.5", "1.0", "1.5", "2.0")
    return [
        RivalComparison(
            own="qssf",
            rival=rival,
            environment="pollux",
            cells=cells,
            figure=mean_jct_s,
            seeds=(0,),
        ).change(data, "mean JCT", claimed_ratio, at_best=at_best)
        for rival, claimed_ratio, at_best in (("fifo", 1 / 6.5 - 1, True), ("tiresias", 0.0, False))
    ]


def themis_changes(data: Path) -> list[ClaimedChange]:
    """Compare fairness and makespan."""
    cells = trace_sizes(data / "training" / "shockwave" / "120-jobs.trace", 6, 8, 12)
    return [
        change
        for rival in ("max-min", "gandiva-fair", "allox")
        for change in _by_figure(
            data,
            ("themis", rival),
            "shockwave",
            cells,
            ("worst finish-time fairness", worst_fairness_ratio, 1 / 2.25 - 1),
            ("makespan", makespan_s, 1 / 1.05 - 1),
        )
    ]


def gandiva_changes(data: Path) -> list[ClaimedChange]:
    """Compare with an equal part of the cluster for every job."""
    trace = data / "training" / "gavel" / "max_min_fairness.trace"
    return _by_figure(
        data,
        ("gandiva", "isolated"),
        "gavel",
        trace_sizes(trace, 1, 2, 4, 8, gpus=4),
        ("mean JCT", mean_jct_s, 1 / 1.26 - 1),
        ("makespan", makespan_s, 1 / 1.26 - 1),
    )


def antman_changes(data: Path) -> list[ClaimedChange]:
    """Compare with whole GPUs."""
    trace = data / "training" / "muri" / "trace3.csv"
    return _by_figure(
        data,
        ("antman", "fifo"),
        "muri",
        trace_sizes(trace, 4, 8, 16, gpus=8, settings={"job_count": 200}),
        ("mean JCT", mean_jct_s, 0.0),
        ("makespan", makespan_s, 1 / 1.34 - 1),
    )


def chronus_changes(data: Path) -> list[ClaimedChange]:
    """Compare with EDF without admission."""
    trace = data / "training" / "chronus" / "philly-mix1-first-3000.csv"
    return _by_figure(
        data,
        ("chronus", "edf consolidated=true"),
        "chronus",
        trace_sizes(trace, 12, 16, gpus=8),
        ("missed deadlines", missed_ratio, 1 / 14.7 - 1),
        ("JCT of best effort", best_effort_s, 1 / 19.9 - 1),
        at_best=True,
    )


def andreas_changes(data: Path) -> list[ClaimedChange]:
    """Compare prices with FIFO and EDF, which choose no GPU models, and with greedy orders."""
    cells = loads(0.2, 0.4, 0.6, 1.0, jobs=30)
    return [
        RivalComparison(
            own="andreas", rival=rival, environment="andreas", cells=cells, figure=price_dollars
        ).change(data, "price", -0.3)
        for rival in (
            "fifo",
            "edf",
            "andreas randomized=false order=arrival",
            "andreas randomized=false order=deadline",
        )
    ]


def a_online_changes(data: Path) -> list[ClaimedChange]:
    """Compare with FIFO and with known run times."""
    cells = loads(0.2, 0.4, 0.6, 1.0, jobs=30)
    return [
        RivalComparison(
            own="a-online", rival=rival, environment="andreas", cells=cells, figure=mean_jct_s
        ).change(data, "mean JCT", 0.0)
        for rival in ("fifo", "srtf")
    ]


def oasis_changes(data: Path) -> list[ClaimedChange]:
    """Compare the lost utility with orders that refuse no job, and with elastic workers."""
    cells = [
        Cell(label=f"load {ratio:g}", settings={"load_ratio": ratio})
        for ratio in (0.25, 0.5, 1.0, 2.0)
    ]
    lost = "lost utility"
    return [
        RivalComparison(
            own=own, rival=rival, environment="servers", cells=cells, figure=lost_utility_ratio
        ).change(data, what, 0.0)
        for own, rival, what in (
            ("oasis", "fifo", lost),
            ("oasis", "edf", lost),
            ("oasis", "optimus", lost),
            ("oasis", "srtf", lost),
            ("oasis low_price_ratio=250", "srtf", f"{lost}, low price 1,000 times as high,"),
        )
    ]


def bftrainer_changes(data: Path) -> list[ClaimedChange]:
    """Compare with dedicated nodes."""
    dedicated = "bftrainer present_s=1e12"
    runs = RivalComparison(
        own="bftrainer",
        rival=dedicated,
        environment="transient",
        cells=sizes(4, 8, 16),
        figure=mean_jct_s,
    )
    changes_ratio = {}
    for cell in runs.cells:
        (fewer,) = sizes(3 * cell.setup["nodes"] // 4)  # as many as are present in the mean
        own_s = runs.mean_figure(data, "bftrainer", cell)
        dedicated_s = runs.mean_figure(data, dedicated, fewer)
        changes_ratio[f"{cell.label}, present 3/4 of the time"] = own_s / dedicated_s - 1
    return [
        ClaimedChange(
            what="mean JCT against as many dedicated nodes",
            claimed_ratio=1 / 0.93 - 1,
            changes_ratio=changes_ratio,
            at_best=True,
        )
    ]


def decima_changes(data: Path) -> list[ClaimedChange]:
    """Compare the tree with its teacher and with the heuristics."""
    return [
        RivalComparison(
            own="dag-tree", rival=rival, environment="executors", cells=sizes(25, 50, 100),
            figure=mean_jct_s,
        ).change(data, "mean JCT", claimed_ratio)
        for rival, claimed_ratio in (("dag-shortest", 0.05), ("dag-fair", 0.0), ("dag-fifo", 0.0))
    ]  # fmt: skip
