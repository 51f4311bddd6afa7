"""Time of one bind with and without the fence, on a real kube-apiserver and etcd.

    python -m bench.fence [--nodes 20] [--pods 200] [--at-once 16]

One process binds pods in turn with and without the record of their node, so that the difference
holds when the machine's speed drifts: first one after the other, then several at once.
"""

import argparse
import asyncio
import copy
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

from scheduler.cluster.api import connect
from scheduler.cluster.link import Handlers, LiveCluster
from scheduler.extender.binding import Binder
from scheduler.extender.planning_service import prepare_kernels
from scheduler.extender.scheduling import Scheduler
from scheduler.extender.state import State
from scheduler.extender.wire import ExtenderBindingArgs
from scheduler.metrics import Metrics
from scheduler.settings import Settings
from tests.e2e.documents import CRDS, SAMPLES, documents_in
from tests.testbed.api import apply_all
from tests.testbed.control_plane import ControlPlane
from tests.testbed.nodes import create_nodes, gpu_nodes
from tests.testbed.pods import function_pod

GPUS = 8
VARIANTS = ("fence", "no fence")


def main() -> int:
    """Run and print the medians."""
    options = _options()
    prepare_kernels()
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        apply_all(plane.api, documents_in(CRDS))
        apply_all(plane.api, documents_in(SAMPLES))
        create_nodes(plane.api, gpu_nodes(options.nodes, GPUS, cpu=512), timeout_s=300)
        names = [f"pod-{number:04d}" for number in range(2 * options.pods)]
        for name in names:
            plane.api.create(function_pod(name, function="deblur"))
        asyncio.run(_measure(plane, names, options))
    return 0


async def _measure(plane: ControlPlane, names: list[str], options: argparse.Namespace) -> None:
    settings = Settings(api_timeout_s=4.5)
    state = State(settings, Metrics(settings.prices))
    documents = state.documents
    handlers = Handlers(state.nodes, state.pods, documents.workflows, documents.profiles)
    async with connect(plane.kubeconfig) as api:
        link = LiveCluster(api, handlers, records_namespace="kube-system")
        unfenced = copy.copy(link)
        unfenced.records = None
        task = asyncio.create_task(link.run())
        while not link.synced():  # noqa: ASYNC110 - it has no event of its own
            await asyncio.sleep(0.05)
        scheduler = Scheduler(state)
        binders = [Binder(state, scheduler, of) for of in (link, unfenced)]
        uids = {pod.name: uid for uid, pod in state.pods.pending.items()}
        times_s: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        rates: dict[str, list[float]] = {variant: [] for variant in VARIANTS}

        async def bind(which: int, number: int) -> None:
            name = names[number]
            node = f"node-{number // 2 % options.nodes:03d}"
            await binders[which].bind(
                ExtenderBindingArgs(
                    PodName=name, PodNamespace="default", PodUID=uids[name], Node=node
                )
            )

        for number in range(options.pods):
            began_s = time.perf_counter()
            await bind(number % 2, number)
            times_s[VARIANTS[number % 2]].append(time.perf_counter() - began_s)
        for first in range(options.pods, 2 * options.pods, options.at_once):
            which = first // options.at_once % 2
            group = range(first, min(first + options.at_once, 2 * options.pods))
            began_s = time.perf_counter()
            await asyncio.gather(*(bind(which, number) for number in group))
            rates[VARIANTS[which]].append(len(group) / (time.perf_counter() - began_s))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    for variant in VARIANTS:
        print(
            f"{variant:<10} median {median(times_s[variant]) * 1000:6.2f} ms a bind; "
            f"{median(rates[variant]):6.0f} binds/s, {options.at_once} at once"
        )
    added_ms = [(a - b) * 1000 for a, b in zip(*times_s.values(), strict=True)]
    ratio = median(rates["fence"]) / median(rates["no fence"])
    print(f"fence: {median(added_ms):.2f} ms more a bind, {ratio:.2f} of the rate", file=sys.stdout)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fence", description=__doc__)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
