"""A trace of requests through gateway, extender and kube-scheduler, next to the simulator."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median_low

import aiohttp

from tests.e2e.played_models import PlayedModels
from tests.simulation.simulated_trace import (
    NOISE_RATIO,
    ServedTrace,
    TraceFigures,
    percents,
    tail_s,
)
from tests.testbed.control_plane import ControlPlane
from tests.testbed.driver import TLS_CLOSE_S
from tests.testbed.pod_watch import LONGEST_EVENT_BYTES
from workbench.cluster.model_pods import ModelPods
from workbench.cluster.process import programs
from workbench.demo.function_servers import answer_factor
from workbench.demo.load_generator import LoadPlan, LoadWorkflow, RequestOutcome
from workbench.demo.results import percentile
from workbench.demo.summary import LATE_RATIO

_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A trace that the gateway has answered.

    Attributes:
        outcomes: outcome of each request.
        client_late_p99_ms: how late the client sent its requests.
        server_late_p99_ms: time that runs of model servers took above the planned one.
        most_running_percent: largest percent of runs at a time on one GPU.
        most_process_percent: largest percent of processes at a time on one GPU, idle or not.
    """

    figures: TraceFigures
    outcomes: Sequence[RequestOutcome]
    client_late_p99_ms: float
    server_late_p99_ms: float
    most_running_percent: int
    most_process_percent: int


async def serve(trace: ServedTrace, plane: ControlPlane, *, port: int, model_port: int) -> Served:
    """Send a trace to the gateway at a port; its FunctionServers name the models' port."""
    async with (
        programs() as running,
        aiohttp.ClientSession(
            plane.url,
            connector=aiohttp.TCPConnector(ssl=plane.tls()),
            read_bufsize=LONGEST_EVENT_BYTES,
        ) as http,
    ):
        model_pods = await ModelPods.begin(running, seed=trace.seed, noise_ratio=NOISE_RATIO)
        models = PlayedModels(model_pods, trace.catalogue, model_port)
        following = asyncio.create_task(models.follow(http))
        command = [sys.executable, "-m", "workbench.demo.load_generator"]
        client = await running.start("the client", command, pipes=True, may_end=True)
        await client.write(json.dumps(asdict(_load_plan(trace, port))).encode())
        begin_s = json.loads(await client.line())
        models.usage.update((), begin_s)
        outcomes: list[RequestOutcome] = []
        while line := json.loads(await client.line()):
            outcomes += (RequestOutcome(*fields) for fields in line[1])
        models.account()
        report = await model_pods.report()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await http.close()
        await asyncio.sleep(TLS_CLOSE_S)
    return Served(
        figures=TraceFigures(
            *percents(trace, _numbers_in_time(trace, outcomes)),
            dollars_per_thousand=1000 * models.usage.dollars / trace.requests,
            runs=round(report["runs"]) - len(models.bound),  # without the first one of each pod
            pods=len(models.bound),
            tail_s=tail_s(trace, {o.number: o.latency_ms for o in outcomes}),
        ),
        outcomes=outcomes,
        client_late_p99_ms=percentile([o.late_ms for o in outcomes], 99) or 0.0,
        server_late_p99_ms=report["late_p99_ms"],
        most_running_percent=round(report["most_percent"]),
        most_process_percent=models.most_process_percent,
    )


def _load_plan(trace: ServedTrace, port: int) -> LoadPlan:
    """Return the load generator's plan for the requests of a trace."""
    last_ms = max(float(times_ms[-1]) for times_ms, _ in trace.arrivals.chunks())
    return LoadPlan(
        host="127.0.0.1",
        port=port,
        workflows=[
            LoadWorkflow(*workflow.key, answer_factor(workflow))
            for workflow in trace.catalogue.workflows.values()
        ],
        load=trace.load,
        seconds=last_ms / 1000 + 1e-6,
        seed=trace.seed,
    )


def table(served: Served, simulations: Sequence[TraceFigures], trace: ServedTrace) -> str:
    """Format the served run and the simulated ones for people."""
    rows = [
        (f"in time, first {trace.first:,} requests, %", "first_percent", ".1f"),
        (f"in time, {trace.then:,} requests after them, %", "then_percent", ".1f"),
        ("dollars per 1,000 requests, idle pods included", "dollars_per_thousand", ".3f"),
        ("batches", "runs", ",d"),
        ("pods started", "pods", ",d"),
        ("last answer after the last arrival, s", "tail_s", ".1f"),
    ]
    lines = [f"{'':50}{'served':>10}{'simulated, least':>18}{'median':>10}{'most':>10}"]
    for title, name, form in rows:
        values = sorted(getattr(figures, name) for figures in simulations)
        line = f"{title:50}{getattr(served.figures, name):>10{form}}{values[0]:>18{form}}"
        lines.append(f"{line}{median_low(values):>10{form}}{values[-1]:>10{form}}")
    lines.append(
        f"the client sent its requests {served.client_late_p99_ms:.1f} ms late, and the played "
        f"model servers ran {served.server_late_p99_ms:.1f} ms too long (99th percentiles)"
    )
    slos_ms = [w.spec.slo.latency_ms for w in trace.catalogue.workflows.values()]
    if max(served.client_late_p99_ms, served.server_late_p99_ms) > LATE_RATIO * min(slos_ms):
        lines.append(
            "THIS MACHINE DID NOT KEEP UP with client and played model servers, which are not the "
            "product: the served requests in time mean nothing"
        )
    lines.append(
        f"at most {served.most_running_percent} % of a GPU ran at a time, of "
        f"{served.most_process_percent} % in processes"
    )
    refusals = [o.status for o in served.outcomes if o.status != _OK]
    lines += [f"{refusals.count(status)} x status {status}" for status in sorted(set(refusals))]
    return "\n".join(lines)


def _numbers_in_time(trace: ServedTrace, outcomes: Sequence[RequestOutcome]) -> set[int]:
    slos_ms = [w.spec.slo.latency_ms for w in trace.catalogue.workflows.values()]
    return {
        o.number
        for o in outcomes
        if o.status == _OK and o.is_right and o.latency_ms <= slos_ms[o.workflow]
    }
