"""Benchmark of the search: kernels, Python front, other compiled searches and CP-SAT.

    python -m bench.search [--plot FILE]

Every figure is over four requests: the remaining time is 1.2, 1.5, 2 and 3 times that of the
fastest completion. The figures are compared with ``bench/ranges/search.json``; the status is 1 if
one is out of its range.
"""

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from itertools import zip_longest
from math import inf, isclose
from pathlib import Path

from bench import growth
from bench.many_workflows import many
from bench.search_cases import SearchCase
from bench.thresholds import check_ranges
from bench.timing import Timing
from scheduler.search.planner import prepare
from tests.search.factories import Shape, any_order, fork_join
from workbench.profiles.builders import chain

ROUNDS = 101
SLOW_ROUNDS = 7  # of calls of milliseconds or more
LARGE_ROUNDS = 15
SEEDS = range(1, 9)
COST_RELATIVE = 1e-6  # CP-SAT uses whole numbers

NONE_DOMINATED = ", none dominated"

START = """\
import time
began = time.perf_counter()
from scheduler.search.planner import prepare
prepare()
print(time.perf_counter() - began)
"""


def print_median_us(name: str, timings: list[Timing]) -> float:
    """Print one line; return the median over the requests."""
    median_us = statistics.median(t.median_us for t in timings)
    minimum_us = min(t.minimum_us for t in timings)
    print(f"  {name:40} median {median_us:12,.1f} us   minimum {minimum_us:10,.1f} us", flush=True)
    return median_us


def print_ratio(name: str, solver: list[Timing], kernel: list[Timing]) -> float:
    """Print the minimum time of a solver over the kernel's, per request; return the median."""
    ratios = [s.minimum_us / t.minimum_us for s, t in zip(solver, kernel, strict=True)]
    print(
        f"  {name}: {', '.join(f'{ratio:,.1f}' for ratio in ratios)} times the kernel", flush=True
    )
    return statistics.median(ratios)


def time_requests(
    case: SearchCase, prepare_call: Callable[[float], Callable[[], object]], rounds: int
) -> list[Timing]:
    """Measure each request, answered in one way."""
    return [Timing.of(prepare_call(limit_ms), rounds) for limit_ms in case.limits_ms]


def planned_costs(case: SearchCase, limit_ms: float) -> list[float]:
    """Return the costs of the planner's candidates, the lowest first."""
    plan = case.through_the_front(limit_ms)()
    return [candidate.path_cost_dollars for candidate in plan.candidates]


def check(planned: list[float], solved: list[float]) -> None:
    """Compare the planner's costs with those of a solver."""
    pairs = zip_longest(planned, solved, fillvalue=inf)
    if not planned or not all(isclose(a, b, rel_tol=COST_RELATIVE) for a, b in pairs):
        raise RuntimeError(f"costs differ: {planned}, the solver has {solved}")


def against_peers(*, undominated: bool) -> dict[str, float]:
    """Measure 3 stages x 256 configurations: kernel, front, and other compiled exact searches."""
    case = SearchCase(chain(3), 256, undominated=undominated)
    print(f"3 stages x 256 configurations{NONE_DOMINATED if undominated else ''}, K 5")
    kernel = time_requests(case, case.by_kernel, ROUNDS)
    front = time_requests(case, case.through_the_front, ROUNDS)
    figures = {
        "query_us": print_median_us("kernel", kernel),
        "front_us": print_median_us("through the Python front", front),
        "prepare_ms": case.prepared_ms,
        "join_us": case.join_us(),
    }
    print(f"  {'documents to frontiers, once':40} median {1e3 * case.prepared_ms:12,.1f} us")
    print(f"  {'of it the join of the later stages':40} minimum {figures['join_us']:11,.1f} us")
    for name, text, search, rounds in (
        ("vs_merge", "merge of the later stages in each call", case.by_merge, ROUNDS),
        ("vs_astar_dominance", "A* with dominance", case.by_astar_with_dominance, SLOW_ROUNDS),
        ("vs_papers_astar", "A* with the paper's bounds", case.by_the_papers_astar, SLOW_ROUNDS),
    ):
        searches = [search(limit_ms) for limit_ms in case.limits_ms]
        timings = [Timing.of(search, rounds) for search in searches]
        for search_once, limit_ms in zip(searches, case.limits_ms, strict=True):
            check(planned_costs(case, limit_ms), search_once.costs())
        print_median_us(text, timings)
        figures[name] = print_ratio(text, timings, kernel)
    return figures if not undominated else {f"undominated_{k}": v for k, v in figures.items()}


def against_cp_sat(*, undominated: bool) -> dict[str, float]:
    """Measure 5 stages x 256 configurations: kernel, front, and CP-SAT for the minimum cost."""
    case = SearchCase(chain(5), 256, undominated=undominated)
    print(f"\n5 stages x 256 configurations{NONE_DOMINATED if undominated else ''}, K 5")
    solvers = [case.by_cp_sat(limit_ms) for limit_ms in case.limits_ms]
    for solver, limit_ms in zip(solvers, case.limits_ms, strict=True):
        check(planned_costs(case, limit_ms)[:1], [solver.dollars()])
    kernel = time_requests(case, case.by_kernel, ROUNDS)
    cp_sat = [Timing.of(solver.dollars, SLOW_ROUNDS) for solver in solvers]
    print(f"  {'documents to frontiers':40} median {case.prepared_ms:12,.1f} ms")
    front = time_requests(case, case.through_the_front, ROUNDS)
    figures = {
        "prepare_5_ms": case.prepared_ms,
        "query_5_us": print_median_us("kernel", kernel),
        "front_5_us": print_median_us("through the Python front", front),
        "cp_sat_us": print_median_us("CP-SAT, one worker, the model built", cp_sat),
        "vs_cpsat": print_ratio("CP-SAT", cp_sat, kernel),
    }
    return figures if not undominated else {f"undominated_{k}": v for k, v in figures.items()}


def large() -> dict[str, float]:
    """Measure workflows of many stages; return the worst values of both kinds of order."""
    print(
        "\nlarge workflows, K 5                first stage   all stages"
        "     a plan: median   worst   epsilon"
    )
    joined = [
        _large(name + note, shape, configurations, undominated=bool(note))
        for note in ("", ", undominated")
        for name, shape, configurations in (
            ("chain 5 x 256", chain(5), 256),
            ("chain 20 x 256", chain(20), 256),
            ("fork-join 16 x 64", fork_join(16), 64),
        )
    ]
    searched = [_any_order(12, 32, seed) for seed in SEEDS]
    for stages, configurations in ((24, 128), (32, 256)):
        for seed in SEEDS[:2]:
            _any_order(stages, configurations, seed)
    return {**_worst("series_parallel", joined), **_worst("any_order", searched)}


def _worst(kind: str, cases: Iterable[tuple[float, ...]]) -> dict[str, float]:
    names = ("prepare_ms", "query_ms", "epsilon_percent")
    worst = map(max, zip(*cases, strict=True))
    return {f"{kind}_{name}": value for name, value in zip(names, worst, strict=True)}


def _any_order(stages: int, configurations: int, seed: int) -> tuple[float, ...]:
    name = f"any order {stages} x {configurations}, seed {seed}"
    return _large(name, any_order(stages, seed), configurations)


def _large(
    name: str, shape: Shape, configurations: int, *, undominated: bool = False
) -> tuple[float, ...]:
    """Measure the preparation of all stages, the slowest plan after it, and epsilon."""
    case = SearchCase(shape, configurations, undominated=undominated)
    whole_ms = case.whole_ms()
    timings = time_requests(case, case.through_the_front, LARGE_ROUNDS)
    median_us = statistics.median(t.median_us for t in timings)
    worst_us = max(t.median_us for t in timings)
    plans = [case.through_the_front(limit_ms)() for limit_ms in case.limits_ms]
    epsilon_percent = 100 * max(plan.epsilon for plan in plans)
    print(
        f"  {name:33} {case.prepared_ms:8,.0f} ms {whole_ms:9,.0f} ms "
        f"{median_us:15,.0f} us {worst_us:4,.0f} us {epsilon_percent:7.2g} %",
        flush=True,
    )
    return whole_ms, worst_us / 1e3, epsilon_percent


def measure_starts() -> None:
    """Measure a new process that runs all kernels once, without and with a cache."""
    print("\na new process, from import to ready")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("no cache: all kernels are compiled", "kernels in the cache"):
            process = subprocess.run(
                [sys.executable, "-c", START],
                env={**os.environ, "NUMBA_CACHE_DIR": folder},
                check=True,
                capture_output=True,
                text=True,
            )
            print(f"  {name:40} {float(process.stdout):6.1f} s", flush=True)


def main() -> int:
    """Run all measurements, print them, and check their ranges."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plot", type=Path, help="SVG file for the growth of a plan's time")
    path = parser.parse_args().plot
    prepare()
    gc.disable()  # the measured code creates no reference cycles
    figures: dict[str, float] = {}
    for undominated in (False, True):
        figures |= against_peers(undominated=undominated)
        figures |= against_cp_sat(undominated=undominated)
    figures |= {**large(), **many()}
    measured = growth.sweeps()
    for sweep in measured:
        sweep.print()
    if path is not None:
        growth.plot(measured, path)
    measure_starts()
    _, by_configurations, _ = measured
    figures["growth_exponent"] = by_configurations.exponent()
    status = check_ranges("search", figures)
    print(
        f"query_us: {figures['query_us']:.1f}  front_us: {figures['front_us']:.1f}  "
        f"vs_merge: {figures['vs_merge']:.1f}  "
        f"vs_astar_dominance: {figures['vs_astar_dominance']:.0f}  "
        f"vs_cpsat: {figures['vs_cpsat']:,.0f}"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
