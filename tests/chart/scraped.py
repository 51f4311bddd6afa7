"""A real Prometheus that scrapes the service under the demo's load, and an agent with played GPUs.

Nothing of it needs a cluster: the service keeps one in memory, and the agent finds no API server,
which it waits for while its metrics go on.
"""

import asyncio
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import yaml

from scheduler.cli.reading import read_nodes, read_sound
from scheduler.model.documents import Workflow
from scheduler.model.plan import Prices
from tests.agent.fakes import FakeGpus, compiled
from tests.testbed import REPOSITORY
from tests.testbed.api import wait_until
from tests.testbed.processes import Guard, Process, free_port
from workbench.demo.engine import DemoEngine
from workbench.demo.extender import ExtenderClient
from workbench.demo.runner import demo_arrivals
from workbench.simulation.workloads.paper import Load

PROMETHEUS = shutil.which("prometheus")
NODES = REPOSITORY / "deploy" / "nodes" / "mocked-16x1.yaml"
SAMPLES = REPOSITORY / "deploy" / "samples"
ESG = str(Path(sys.executable).with_name("esg"))
FELL_OFF_THE_BUS = 79  # an XID that makes a GPU ill
GIB = 2**30
_READY_S = 60.0
_DRAIN_S = 20.0
# Nobody listens there: the agent reads GPUs and tells of them, and publishes nothing.
_NO_CLUSTER = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "none",
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {}}],
}


@dataclass(frozen=True, slots=True)
class Series:
    """One line of an answer."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """Seconds since the epoch, and value; all finite."""


class Prometheus:
    """The API of one that runs."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=30)

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return self._http.get("/-/ready").is_success
        except httpx.TransportError:
            return False

    def over(self, query: str, *, since: float, until: float, step_s: float) -> list[Series]:
        """A query's answer over a time.

        Raises:
            AssertionError: Prometheus says that the query is wrong.
        """
        span = {"query": query, "start": since, "end": until, "step": step_s}
        answer = self._http.get("/api/v1/query_range", params=span).json()
        assert answer["status"] == "success", f"{query}: {answer}"
        found = []
        for each in answer["data"]["result"]:
            points = [(at, float(value)) for at, value in each["values"]]
            finite = [(at, value) for at, value in points if math.isfinite(value)]
            if finite:
                found.append(Series(each["metric"], finite))
        return found

    def now(self, query: str) -> float | None:
        """What a query with one answer says at this moment; None: nothing."""
        answer = self._http.get("/api/v1/query", params={"query": query}).json()
        result = answer["data"]["result"]
        return float(result[0]["value"][1]) if result else None

    def rules(self) -> list[dict[str, Any]]:
        """Its rules, with how their last evaluation went."""
        groups = self._http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


@dataclass(frozen=True, slots=True)
class Scraped:
    """What is there after the load."""

    prometheus: Prometheus
    began: float
    """When the first request arrived, in seconds since the epoch."""
    ended: float
    scraped_every_s: float


@contextmanager
def scraped_demo(
    folder: Path, *, seconds: float, load: Load, scraped_every_s: float, rules: Sequence[Any] = ()
) -> Iterator[Scraped]:
    """Play the load, scraped all the while; what was started ends with the context.

    Args:
        folder: for logs and Prometheus' data.
        seconds: of arrivals.
        load: how often requests arrive.
        scraped_every_s: time between two scrapes, and between two evaluations of the rules.
        rules: groups of rules.
    """
    guard = Guard()
    ports = service_port, agent_port = free_port(), free_port()
    port = free_port()
    gpus = FakeGpus(folder, compiled(folder), 2)
    gpus.set(0, utilization=62, used=31 * GIB, temperature=64)
    gpus.set(1, utilization=18, used=9 * GIB, temperature=51)
    (folder / "nowhere.yaml").write_text(yaml.safe_dump(_NO_CLUSTER))
    _configure(folder, ports, scraped_every_s, rules)
    told = {"log_folder": folder, "guard": guard}
    service = Process(
        "service",
        [ESG, "serve", f"--embedded={NODES}", f"--profiles={SAMPLES}", f"--port={service_port}"],
        environment={"ESG_LOG_LEVEL": "warning"},
        **told,
    )
    agent = Process(
        "agent",
        [ESG, "agent", f"--node={_node_names()[0]}", f"--kubeconfig={folder / 'nowhere.yaml'}"],
        environment={
            **gpus.environment,
            "ESG_AGENT_PORT": str(agent_port),
            "ESG_AGENT_READ_EVERY_S": "0.2",
            "ESG_AGENT_REQUIRE_MPS": "false",
        },
        **told,
    )
    prometheus = Process(
        "prometheus",
        [
            PROMETHEUS or "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ],
        **told,
    )
    api = Prometheus(f"http://127.0.0.1:{port}")
    try:
        service.start()
        agent.start()
        prometheus.start()
        prometheus.wait_ready(api.is_ready, timeout_s=_READY_S)
        agent.wait_ready(lambda: _answers(agent_port, "healthz"), timeout_s=_READY_S)
        service.wait_ready(lambda: _answers(service_port, "readyz"), timeout_s=_READY_S)
        wait_until(lambda: api.now("sum(up)") == len(ports), what="both are scraped")
        began = time.time() + scraped_every_s
        url = f"http://127.0.0.1:{service_port}"
        asyncio.run(_play(url, load, began=began, seconds=seconds, gpus=gpus))
        played = time.time()
        wait_until(
            lambda: (api.now("min(timestamp(up))") or 0) > played, what="the end of it is scraped"
        )
        yield Scraped(api, began, time.time(), scraped_every_s)
    finally:
        api.close()
        for process in (prometheus, agent, service):
            process.stop()
        guard.close()


def _configure(
    folder: Path, ports: Sequence[int], scraped_every_s: float, rules: Sequence[Any]
) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": list(rules)}))
    every = f"{round(scraped_every_s * 1000)}ms"
    targets = [f"127.0.0.1:{port}" for port in ports]
    configuration = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [
            {"job_name": "esg", "honor_labels": True, "static_configs": [{"targets": targets}]}
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))


def _answers(port: int, path: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/{path}", trust_env=False).is_success
    except httpx.TransportError:
        return False


def _node_names() -> list[str]:
    return [each["metadata"]["name"] for each in read_nodes(NODES)]


async def _play(url: str, load: Load, *, began: float, seconds: float, gpus: FakeGpus) -> None:
    """Let the requests arrive and be served, and a GPU fall ill half-way."""
    async with aiohttp.ClientSession() as session:
        workflows = [each for each in read_sound(SAMPLES) if isinstance(each, Workflow)]
        client = ExtenderClient(session, url)
        engine = DemoEngine(client, _node_names(), workflows, Prices(), 0)
        requests = demo_arrivals(workflows, load, seconds=seconds, seed=0, began_ms=1000 * began)
        strike = asyncio.get_running_loop().call_later(
            seconds / 2, gpus.strike, 1, FELL_OFF_THE_BUS
        )
        await engine.play(requests, drain_s=_DRAIN_S)
        strike.cancel()
