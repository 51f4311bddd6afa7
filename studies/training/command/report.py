"""Files of ``esg jobs --out``: the page and the results of all runs."""

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from scheduler import __version__
from scheduler.model.message_text import listed
from studies.training.result import JobsResult, quantile
from studies.training.runs.setup import JobsOutcome, JobsSetup
from studies.training.runs.worker import JOBS_FILE, TRACE_FILE
from workbench.commands.simulate.report import write_page
from workbench.reports.trained import TrainedBar, TrainedRun
from workbench.reports.trained_page import trained_page

RESULTS_FILE = "results.json"
_S_PER_H = 3600.0
_USE_POINTS = 160  # of a line


def write_jobs_report(folder: Path, outcomes: Sequence[JobsOutcome]) -> None:
    """Write results and page, and print what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = _facts(outcomes)
    lines = ",\n".join(json.dumps(outcome.summary()) for outcome in outcomes)
    head = json.dumps({"esg": __version__, "facts": facts})[:-1]
    results = f'{head}, "runs": [\n{lines}\n]}}\n'
    (folder / RESULTS_FILE).write_text(results, encoding="utf-8")
    names = run_names([outcome.setup for outcome in outcomes])
    remarks = [
        f"{name}: {outcome.failure}"
        for name, outcome in zip(names, outcomes, strict=True)
        if outcome.failure
    ]
    if any(None in (outcome.setup.workload, outcome.setup.data) for outcome in outcomes):
        remarks.append("Jobs or models are generated, not measured: compare policies only.")
    runs = [
        _run(name, outcome.result)
        for name, outcome in zip(names, outcomes, strict=True)
        if outcome.result is not None
    ]
    write_page(folder, lambda: trained_page(runs, facts, remarks), RESULTS_FILE)


def run_names(setups: Sequence[JobsSetup]) -> list[str]:
    """Name each run by its policy, and by what is not the same in all runs."""
    varying = {name for name in _settings(setups) if len(_values(setups, name)) > 1}
    names = []
    for setup in setups:
        parts = [setup.policy]
        if len({run.workload_name for run in setups}) > 1:
            parts.append(setup.workload_name)
        if len({run.seed for run in setups}) > 1:
            parts.append(f"seed {setup.seed}")
        parts += [f"{name}={v}" for name, v in setup.settings.items() if name in varying]
        names.append(", ".join(parts))
    return names


def _settings(setups: Sequence[JobsSetup]) -> list[str]:
    return list(dict.fromkeys(name for setup in setups for name in setup.settings))


def _values(setups: Sequence[JobsSetup], name: str) -> list[str]:
    return list(dict.fromkeys(str(s.settings[name]) for s in setups if name in s.settings))


def _facts(outcomes: Sequence[JobsOutcome]) -> dict[str, str]:
    setups = [outcome.setup for outcome in outcomes]
    clusters = [outcome.result.nodes for outcome in outcomes if outcome.result is not None]
    sizes = sorted({f"{len(nodes)} nodes, {sum(nodes)} GPUs" for nodes in clusters})
    settings = {f"Setting {name}": listed(_values(setups, name)) for name in _settings(setups)}
    return {
        "Environment": listed(sorted({setup.environment for setup in setups})),
        "Workloads": listed(sorted({setup.workload_name for setup in setups})),
        "Cluster": listed(sizes),
        "Seeds": listed([str(seed) for seed in sorted({setup.seed for setup in setups})]),
        **settings,
        "Files": f"runs/*/{JOBS_FILE}: every job; runs/*/{TRACE_FILE}: Chrome trace of placements",
    }


def _run(name: str, result: JobsResult) -> TrainedRun:
    begin_s = min(job.submit_s for job in result.jobs)
    jcts_h = sorted(jct_s / _S_PER_H for jct_s in result.jcts_s)
    bars = tuple(
        TrainedBar(
            first,
            end,
            (span.begin_s - begin_s) / _S_PER_H,
            (span.end_s - begin_s) / _S_PER_H,
            span.job,
            f"{result.jobs[span.job].name}, {result.jobs[span.job].model}",
        )
        for span in result.spans
        for first, end in _ranges(span.gpus)
    )
    return TrainedRun(
        name=name,
        jobs=len(jcts_h),
        mean_jct_h=result.mean_jct_s / _S_PER_H,
        p50_jct_h=quantile(jcts_h, 0.5),
        p99_jct_h=quantile(jcts_h, 0.99),
        makespan_h=result.makespan_s / _S_PER_H,
        gpu_use_ratio=result.gpu_use_ratio,
        restarts=result.restarts,
        jcts_h=jcts_h,
        gpu_use=_gpu_use(result, begin_s),
        bars=bars,
        gpus=sum(result.nodes),
        node_firsts=list(accumulate(result.nodes, initial=0))[:-1],
    )


def _ranges(gpus: Sequence[int]) -> list[tuple[int, int]]:
    """Return GPU numbers as ranges, so that one box shows neighbours."""
    ordered = sorted(gpus)
    starts = [g for i, g in enumerate(ordered) if not i or ordered[i - 1] != g - 1]
    ends = [g + 1 for i, g in enumerate(ordered) if g + 1 not in ordered[i + 1 :]]
    return list(zip(starts, ends, strict=True))


def _gpu_use(result: JobsResult, begin_s: float) -> list[tuple[float, float]]:
    """Return the mean use in equal spans of the makespan."""
    width_s = result.makespan_s / _USE_POINTS
    used_gpu_s = [0.0] * _USE_POINTS
    for span in result.use_spans:
        first = int((span.begin_s - begin_s) / width_s)
        last = min(int((span.end_s - begin_s) / width_s), _USE_POINTS - 1)
        for i in range(first, last + 1):
            edge_s = begin_s + i * width_s
            overlap_s = min(span.end_s, edge_s + width_s) - max(span.begin_s, edge_s)
            used_gpu_s[i] += len(span.gpus) * max(overlap_s, 0.0)
    capacity_gpu_s = width_s * sum(result.nodes)
    return [
        ((i + 0.5) * width_s / _S_PER_H, gpu_s / capacity_gpu_s)
        for i, gpu_s in enumerate(used_gpu_s)
    ]
