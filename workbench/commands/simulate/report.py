"""Report page of a simulation, from the outcomes of its runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer

from scheduler.model.documents import Document, Workflow
from scheduler.model.message_text import listed
from workbench.commands.simulate.jobs import generated_functions
from workbench.reports.points import Waterfall
from workbench.reports.renderer import MissingReportLibraryError
from workbench.reports.simulated import Comparison, SimulatedPolicy
from workbench.reports.simulated_page import simulated_page
from workbench.simulation.counts import bin_end_ratio
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.results_json import RESULTS_FILE, TIMINGS_FILE
from workbench.simulation.runs.runner import REQUESTS_FILE, TRACE_FILE
from workbench.simulation.runs.summary import Aggregate, aggregate
from workbench.simulation.scenario import Scenario
from workbench.simulation.steady_state import VERDICTS, OverTime

REPORT_FILE = "report.html"
_POINTS_MAX = 128  # of a line
_SHARINGS = {
    "percent": "GPUs shared by MPS percentage",
    "sevenths": "GPUs shared in sevenths, as MIG",
    "whole": "GPUs not shared",
}


def write_report(folder: Path, outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> None:
    """Write the page next to the results, and print what was written."""
    compared = Comparison(
        policies=tuple(map(_policy, aggregate(outcomes))),
        remarks=tuple(_remarks(outcomes, facts)),
        facts=tuple(facts.items()),
    )
    write_page(folder, lambda: simulated_page(compared), RESULTS_FILE, TIMINGS_FILE)


def write_page(folder: Path, draw: Callable[[], str], *written: str) -> None:
    """Write a page of runs, unless its library is missing, and print the names of all files."""
    try:
        (folder / REPORT_FILE).write_text(draw(), encoding="utf-8")
        written = (REPORT_FILE, *written)
    except MissingReportLibraryError as error:
        typer.echo(f"warning: no {REPORT_FILE}: {error}", err=True)
    typer.echo(f"wrote {', '.join(written)} and runs/ to {folder}", err=True)


def facts_of(jobs: Sequence[SimulationJob], documents: Sequence[Document]) -> dict[str, str]:
    """Describe to people what all runs have in common."""
    job = jobs[0]
    scenario = job.scenario
    workflows = [document for document in documents if isinstance(document, Workflow)]
    generated = generated_functions(documents)
    seeds = sorted({job.seed for job in jobs})
    files = f"runs/*/{REQUESTS_FILE}: every request"
    if job.trace_requests:
        files += (
            f"; runs/*/{TRACE_FILE}, of the first seed: what began before "
            f"{job.trace_requests:,} requests had ended"
        )
    named = {
        "Requests": _requests(job),
        "Seeds": listed([str(seed) for seed in seeds]),
        "SLOs": "; ".join(
            f"{setting}: {factor:g} times the workflows' own"
            for setting, factor in {job.setting: job.scenario.slo_factor for job in jobs}.items()
        ),
        "Workflows": listed(["/".join(workflow.key) for workflow in workflows]),
        "Profiles": f"generated, not measured: {listed(generated)}" if generated else "as given",
        "Cluster": _cluster(scenario),
        "Run times": f"the profile's, with log-normal noise of {100 * scenario.noise_ratio:g} %"
        + _interference(scenario),
        "Network": f"{scenario.bandwidth_mib_s:,g} MiB/s between nodes",
        "Containers": _containers(scenario),
        "Steady state": _steady_state(scenario),
        "Planning": _planning(scenario),
        "Switched off": ", ".join(
            name
            for name, on in (
                ("pre-warming", scenario.prewarm),
                ("re-planning", scenario.replan),
                ("batching", scenario.batching),
            )
            if not on
        ),
        "Prices": f"${scenario.rules.prices.vcpu_hour_dollars:g} a vCPU-hour, "
        f"${scenario.rules.prices.gpu_hour_dollars:g} a GPU-hour",
        "Times of planning": f"in {TIMINGS_FILE}, for they differ from one time to the next",
        "Files": files,
    }
    return {name: text for name, text in named.items() if text}


def _policy(series: Aggregate) -> SimulatedPolicy:
    latency, missed, first = series.latency, series.missed, series.results[0]
    requests = sum(result.requests for result in series.results)
    return SimulatedPolicy(
        name=series.policy,
        setting=series.setting,
        requests=requests,
        misses=sum(result.misses for result in series.results),
        dropped=sum(result.dropped for result in series.results),
        hit_ratios=tuple(series.hit_ratios),
        costs_dollars_per_thousand=tuple(series.dollars_per_thousand),
        idle_dollars_per_thousand=series.mean("idle_dollars_per_thousand"),
        paid_bound_ratio=series.paid_bound_ratio,
        split=_waterfall(series),
        state=series.state,
        hits_over_time=_hits_over_time(first.over_time),
        p50_slo_ratio=latency.quantile(0.5),
        p99_slo_ratio=latency.quantile(0.99),
        latencies=_distribution(latency.counts, requests),
        utilisation=_over_time(first.gpu_utilisation, first.gpu_utilisation_bucket_ms / 1000),
        mean_utilisation_ratio=series.mean("mean_utilisation_ratio"),
        missed_ms=(missed.queue_ms, missed.start_ms, missed.transfer_ms, missed.execute_ms),
        mean_batch_size=series.mean("mean_batch_size"),
        dispatches_per_s=series.mean("runs_per_s"),
        cold_starts=series.mean("cold_starts"),
    )


def _waterfall(series: Aggregate) -> Waterfall | None:
    split = series.split
    return None if split is None else Waterfall(series.policy, tuple(split.of_limit().parts()))


def _distribution(counts: Sequence[int], requests: int) -> tuple[tuple[float, float], ...]:
    """Return the ratio of requests within a latency over SLO, at points of visible growth."""
    points: list[tuple[float, float]] = []
    total, shown, step = 0, 0, requests / _POINTS_MAX
    last = max((i for i, count in enumerate(counts) if count), default=0)
    for i, count in enumerate(counts[: last + 1]):
        total += count
        end = bin_end_ratio(i)
        # A point at 1.0: requests of the last bin within the SLO must not look like misses.
        if total - shown >= step or i == last or end == 1.0:
            points.append((end, total / requests))
            shown = total
    return tuple(points)


def _over_time(fill: Sequence[float], bucket_s: float) -> tuple[tuple[float, float], ...]:
    """Return means of several buckets, so that the line has few points, each in its middle."""
    width = -(-len(fill) // _POINTS_MAX)
    chunks = [fill[i : i + width] for i in range(0, len(fill), width)]
    return tuple(
        ((i * width + len(chunk) / 2) * bucket_s, sum(chunk) / len(chunk))
        for i, chunk in enumerate(chunks)
    )


def _hits_over_time(over_time: OverTime) -> tuple[tuple[float, float], ...]:
    """Return the hit ratios of parts of the run, each at the middle of its part."""
    windows = len(over_time.requests)
    parts = min(windows, _POINTS_MAX)
    part_s = windows * over_time.width_ms / 1000 / parts
    return tuple((part_s * (i + 0.5), hits) for i, hits in enumerate(over_time.hit_ratios(parts)))


def _remarks(outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> list[str]:
    remarks = [
        f"{outcome.job}: {outcome.failure}. Requests that had ended before are counted."
        for outcome in outcomes
        if outcome.failure
    ]
    if facts["Profiles"].startswith("generated"):
        remarks.append(
            "The profiles are generated, not measured: compare policies, believe no milliseconds."
        )
    return remarks


def _requests(job: SimulationJob) -> str:
    parameters = job.workload.model_dump(by_alias=True, exclude_defaults=True)
    text = ", ".join(f"{name} {value}" for name, value in parameters.items() if name != "load")
    count = "all" if job.requests is None else f"{job.requests:,}"
    return f"{count} a run, workload {job.workload.name}" + (f" ({text})" if text else "")


def _cluster(scenario: Scenario) -> str:
    models = listed(sorted(set(scenario.gpu_models)))
    count = sum(nodes.count for nodes in scenario.unlike_nodes)
    unlike = f"and {count} unlike nodes; " if count else ""
    return (
        f"{scenario.nodes} nodes, each {scenario.gpus_per_node} GPU "
        f"({models}, {scenario.memory_mib:,} MiB) and {scenario.cpus} vCPU; {unlike}"
        f"{_SHARINGS[scenario.sharing]}"
    )


def _interference(scenario: Scenario) -> str:
    if not scenario.interference_ratio:
        return ""
    return f"; up to {100 * scenario.interference_ratio:g} % longer beside neighbours"


def _containers(scenario: Scenario) -> str:
    keep_alive = f"stay warm for {scenario.container_keep_alive_ms / 1000:,g} s"
    keep_alive += "; " if scenario.keep_alive_ms is not None else " (`warm`: as it learns); "
    if scenario.resizable:
        begin = f"at the start {scenario.warm_containers} of each function on each GPU; "
        return keep_alive + begin + "any share in each run, and none while idle"
    begin = "begin warm for the expected rate; " if scenario.warm_containers else "none at first; "
    share = "held and paid while idle" if scenario.idle_share else "held by runs alone"
    if scenario.pool:
        share += "; pods of `warm` take theirs from slices that their pool sets aside"
    return f"{keep_alive}{begin}a fixed share, {share}"


def _steady_state(scenario: Scenario) -> str:
    rule = "by MSER-5" if scenario.warmup_ms is None else f"{scenario.warmup_ms / 1000:g} s"
    verdicts = "; ".join(f"{name}: {meaning}" for name, meaning in VERDICTS.items())
    return f"the warm-up, {rule}, is in no number. {verdicts}"


def _planning(scenario: Scenario) -> str:
    return (
        f"{scenario.candidates} candidates, {scenario.margin_text}, groups "
        f"of at most {scenario.rules.group_size}; a lost SLO is served {scenario.rules.on_lost_slo}"
    )
