"""Pods bound per second by a real kube-scheduler: alone, with a do-nothing extender, and with ours.

"ours" runs as shipped, and has bound a pod before, as in use: its process is the owner of the GPUs.
In "ours, new owner" all pods wait when it becomes the owner, so each is written once before it is
bound (ADR 34). One control plane serves all variants in turn, several times, so that the ratios
hold when the machine's speed drifts. The API server is polled rarely: it shares the cores.

    python -m bench.cluster [--nodes 1000] [--pods 2000] [--rounds 3] [--only ours,null]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.thresholds import check_ranges
from tests.e2e.documents import CRDS, SAMPLES, documents_in
from tests.testbed import scheduler_config
from tests.testbed.api import apply_all, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.extender import start_extender, wait_extender
from tests.testbed.nodes import create_nodes
from tests.testbed.pods import function_pod
from tests.testbed.processes import Process
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import free_port

QPS = 5000
CLIENTS = 8
POLL_S = 0.25
LONGEST_S = 300
NEW_OWNER = "ours, new owner"
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "null": {},
    "ours": {},
    NEW_OWNER: {},
    "ours, 32 pass": {"ESG_FILTER_NODES_MAX": "32"},
    "ours, all pass": {"ESG_FILTER_NODES_MAX": "0"},
}
RATIOS = {
    "vs_null": ("ours", "null"),
    "vs_none": ("ours", "none"),
    "vs_null_new_owner": (NEW_OWNER, "null"),
    "vs_null_32_pass": ("ours, 32 pass", "null"),
    "vs_null_all_pass": ("ours, all pass", "null"),
    "null_vs_none": ("null", "none"),
}


def main() -> int:
    """Run, print a table, and compare the ratios with bench/ranges/cluster.json."""
    options = _options()
    rates: dict[str, list[float]] = {variant: [] for variant in options.only}
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        _say(f"creating {options.nodes} nodes of 8 GPUs")
        apply_all(plane.api, documents_in(CRDS))
        apply_all(plane.api, documents_in(SAMPLES))
        create_nodes(plane.api, gpu_nodes(options.nodes, 8, cpu=512), timeout_s=300)
        for round_number in range(options.rounds):
            for variant in options.only:
                rate_per_s = _pods_per_s(plane, variant, options.pods)
                rates[variant].append(rate_per_s)
                _say(f"round {round_number + 1}: {variant}: {rate_per_s:.0f} pods/s")
    for variant, measured in rates.items():
        listed = "  ".join(f"{rate:.0f}" for rate in measured)
        print(f"{variant:<22} median {median(measured):6.1f} pods/s   ({listed})")
    figures = _ratios(rates)
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}")
    status = check_ranges("cluster", figures) if options.pods >= 2000 else 0
    if {"vs_null", "vs_none"} <= figures.keys():
        print(f"vs_null: {figures['vs_null']:.2f}  vs_none: {figures['vs_none']:.2f}")
    return status


def _ratios(rates: Mapping[str, list[float]]) -> dict[str, float]:
    """Medians of the ratios of each round."""
    return {
        name: median(a / b for a, b in zip(rates[variant], rates[reference], strict=True))
        for name, (variant, reference) in RATIOS.items()
        if variant in rates and reference in rates
    }


def _pods_per_s(plane: ControlPlane, variant: str, pods: int) -> float:
    """Measure pods per second from the start of scheduling until all are bound."""
    port = free_port()
    if variant == "null":
        _start_null(plane, port)
    elif variant != "none":
        start_extender(plane, port=port, environment=VARIANTS[variant])
    config = scheduler_config.render(
        kubeconfig=plane.scheduler_kubeconfig,
        extender_port=None if variant == "none" else port,
        qps=QPS,
        managed_resources=False,
        verbs=("filter", "prioritize", "bind"),
    )
    if variant != NEW_OWNER:
        _bind_one(plane, config)
    bodies = [_pod(number) for number in range(pods)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(plane.api.create, bodies))
    plane.start_scheduler(config)
    began_s = _first_bound_s(plane)
    cpu_before_s = _cpu_s(plane)
    now_s = began_s
    while plane.api.get("/api/v1/pods", limit=1, fieldSelector="spec.nodeName=")["items"]:
        time.sleep(POLL_S)
        now_s = time.monotonic()
        if now_s - began_s > LONGEST_S:
            raise RuntimeError(f"{variant}: not all of {pods} pods were bound in {LONGEST_S} s")
    rate_per_s = pods / (now_s - began_s)
    _wait_started(plane)
    _say(f"  CPU per pod: {_cpu_per_pod(cpu_before_s, _cpu_s(plane), pods)}")
    plane.reset()
    _delete_pods(plane)
    return rate_per_s


def _bind_one(plane: ControlPlane, config: str) -> None:
    """Have a pod bound and deleted, and stop the scheduler."""
    plane.api.create(_pod(0))
    scheduler = plane.start_scheduler(config)
    _first_bound_s(plane)
    scheduler.stop()
    _delete_pods(plane)


def _delete_pods(plane: ControlPlane) -> None:
    plane.api.delete("/api/v1/namespaces/default/pods", grace_s=0)
    wait_until(lambda: not plane.api.items("/api/v1/pods"), what="no pod left", timeout_s=120)


def _wait_started(plane: ControlPlane) -> None:
    """Wait until KWOK has started the bound pods.

    The faster pods are bound, the more of them it starts afterwards. The CPU time per pod has all
    of this work, so that variants compare.
    """
    wait_until(
        lambda: (
            not plane.api.get("/api/v1/pods", limit=1, fieldSelector="status.phase=Pending")[
                "items"
            ]
        ),
        what="all pods run",
        timeout_s=LONGEST_S,
        pause_s=POLL_S,
    )


def _first_bound_s(plane: ControlPlane) -> float:
    """Wait for the first bound pod: the scheduler fills its caches before. Its time, monotonic."""
    began_s = time.monotonic()
    while not plane.api.get("/api/v1/pods", limit=1, fieldSelector="spec.nodeName!=")["items"]:
        began_s = time.monotonic()
        time.sleep(0.05)
    return began_s


def _cpu_s(plane: ControlPlane) -> dict[str, float]:
    """CPU seconds that each process of the control plane has used so far."""
    used_s = {}
    for process in plane.processes():
        if process.pid is not None:
            times = psutil.Process(process.pid).cpu_times()
            used_s[process.name] = times.user + times.system
    return used_s


def _cpu_per_pod(before_s: Mapping[str, float], after_s: Mapping[str, float], pods: int) -> str:
    return ", ".join(
        f"{name} {(seconds - before_s[name]) * 1000 / pods:.2f} ms"
        for name, seconds in after_s.items()
        if name in before_s
    )


def _start_null(plane: ControlPlane, port: int) -> Process:
    command = [sys.executable, "-m", "bench.do_nothing_extender", str(port), str(plane.kubeconfig)]
    process = plane.process("do-nothing-extender", command)
    process.start()
    wait_extender(process, port=port)
    return process


def _pod(number: int) -> dict[str, Any]:
    return function_pod(
        f"pod-{number:05d}",
        workflow="image-classification",
        stage=("super-resolution", "segmentation", "classification")[number % 3],
        request=f"r{number}",
        annotations={"mock-run": "forever"},
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(VARIANTS).replace(", ", "@"))
    options = parser.parse_args()
    options.only = [name.replace("@", ", ") for name in options.only.split(",")]
    return options


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
