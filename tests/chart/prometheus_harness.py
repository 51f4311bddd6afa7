"""Harness: a real Prometheus scrapes the demo's extender and gateway, and an agent of fake GPUs.

DCGM's exporter is played, from the runs of the demo's model servers.

It needs no cluster: the demo keeps one in memory. The agent cannot reach an API server and retries,
while it continues to serve metrics.
"""

import math
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import yaml
from anyio.from_thread import start_blocking_portal
from rich.console import Console

from scheduler.cli.document_files import read_nodes, read_sound
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.plan import Prices
from tests.agent.fakes import FakeGpus, compiled
from tests.chart.played_dcgm import PlayedDcgm
from tests.testbed import REPOSITORY
from tests.testbed.api import wait_until
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard
from workbench.cluster.process import free_port
from workbench.demo.runner import DemoConfig, demo_cluster, send_requests
from workbench.simulation.workloads.paper import Load

PROMETHEUS = shutil.which("prometheus")
NODES = REPOSITORY / "deploy" / "nodes" / "mocked-16x1.yaml"
SAMPLES = REPOSITORY / "deploy" / "samples"
ESG = str(Path(sys.executable).with_name("esg"))
FELL_OFF_THE_BUS = 79  # an XID that makes a GPU unhealthy
GIB = 2**30
# A rate needs a scrape before and one after an answer.
RATED_WORKFLOWS = "count(sum by (workflow) (rate(esg_workflow_duration_seconds_count[1h])) > 0)"
_READY_S = 60.0
# Nothing listens at that address: the agent reads GPUs and serves metrics, and publishes nothing.
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
    """Series of a query's result."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """Pairs of Unix time in seconds and value; all finite."""


class Prometheus:
    """Client of a running Prometheus."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=30)

    def is_ready(self) -> bool:
        """Check that it is ready for queries."""
        try:
            return self._http.get("/-/ready").is_success
        except httpx.TransportError:
            return False

    def query_range(
        self, query: str, *, start_s: float, end_s: float, step_s: float
    ) -> list[Series]:
        """Evaluate a query at every step of a time range; return the series with finite values.

        Raises:
            AssertionError: Prometheus rejects the query.
        """
        parameters = {"query": query, "start": start_s, "end": end_s, "step": step_s}
        response = self._http.get("/api/v1/query_range", params=parameters).json()
        assert response["status"] == "success", f"{query}: {response}"
        all_series = []
        for result in response["data"]["result"]:
            points = [(time_s, float(value)) for time_s, value in result["values"]]
            finite = [(time_s, value) for time_s, value in points if math.isfinite(value)]
            if finite:
                all_series.append(Series(result["metric"], finite))
        return all_series

    def value(self, query: str) -> float | None:
        """Evaluate a query at the present time; return its first value, or None if it has none."""
        response = self._http.get("/api/v1/query", params={"query": query}).json()
        result = response["data"]["result"]
        return float(result[0]["value"][1]) if result else None

    def rules(self) -> list[dict[str, Any]]:
        """Return its rules with the state of their last evaluation."""
        groups = self._http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def rules_evaluated_s(self) -> float:
        """Return the Unix time since which every rule was evaluated; inf without rules."""
        evaluations = [datetime.fromisoformat(rule["lastEvaluation"]) for rule in self.rules()]
        return min((evaluation.timestamp() for evaluation in evaluations), default=math.inf)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


@dataclass(frozen=True, slots=True)
class ScrapedDemo:
    """Prometheus after the load."""

    prometheus: Prometheus
    start_s: float
    """Unix time of the first arrival."""
    end_s: float
    scraped_every_s: float


@contextmanager
def scraped_demo(
    folder: Path, *, seconds: float, load: Load, scraped_every_s: float, rules: Sequence[Any] = ()
) -> Iterator[ScrapedDemo]:
    """Run the load while Prometheus scrapes; stop all programs at the end of the context.

    The load is repeated until answers of each workflow have a rate: a busy machine may need more.

    Args:
        folder: folder for logs and Prometheus' data.
        seconds: duration of the arrivals.
        load: rate of the arrivals.
        scraped_every_s: interval of the scrapes and of the rules' evaluations.
        rules: groups of rules.
    """
    guard = Guard()
    agent_port, dcgm_port, port = free_port(), free_port(), free_port()
    gpus = FakeGpus(folder, compiled(folder), 2)
    gpus.set(0, utilization=62, used=31 * GIB, temperature=64)
    gpus.set(1, utilization=18, used=9 * GIB, temperature=51)
    (folder / "no-cluster.yaml").write_text(yaml.safe_dump(_NO_CLUSTER))
    config = _demo_config(load, seconds)
    process_options = {"log_folder": folder, "guard": guard}
    agent = Process(
        "agent",
        [
            ESG,
            "agent",
            f"--node={config.nodes[0]['metadata']['name']}",
            f"--kubeconfig={folder / 'no-cluster.yaml'}",
        ],
        environment={
            **gpus.environment,
            "ESG_AGENT_PORT": str(agent_port),
            "ESG_AGENT_READ_EVERY_S": "0.2",
            "ESG_AGENT_REQUIRE_MPS": "false",
            "ESG_AGENT_CHECK_CLAIMS": "false",  # without an API server, all GPUs count as claimed
        },
        **process_options,
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
        **process_options,
    )
    api = Prometheus(f"http://127.0.0.1:{port}")
    console = Console(quiet=True)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(demo_cluster(config)) as cluster,
        portal.wrap_async_context_manager(PlayedDcgm(cluster).serving(dcgm_port)),
    ):
        targets = [*cluster.metrics, f"127.0.0.1:{agent_port}", f"127.0.0.1:{dcgm_port}"]
        _configure(folder, targets, scraped_every_s, rules)
        try:
            agent.start()
            prometheus.start()
            prometheus.wait_ready(api.is_ready, timeout_s=_READY_S)
            agent.wait_ready(lambda: _responds(agent_port, "healthz"), timeout_s=_READY_S)
            wait_until(lambda: api.value("sum(up)") == len(targets), what="all are scraped")
            start_s = time.time()
            strike = threading.Timer(seconds / 2, gpus.strike, (1, FELL_OFF_THE_BUS))
            strike.start()
            while api.value(RATED_WORKFLOWS) != len(config.workflows):
                portal.call(send_requests, config, cluster, console)
                strike.join()
                _wait_for_scrapes(api)
            scraped_s = time.time()
            wait_until(lambda: api.rules_evaluated_s() > scraped_s, what="rules have seen the end")
            yield ScrapedDemo(api, start_s, time.time(), scraped_every_s)
        finally:
            api.close()
            for process in (prometheus, agent):
                process.stop()
            guard.close()


def _wait_for_scrapes(api: Prometheus) -> None:
    """Wait until all targets have been scraped once more."""
    now_s = time.time()
    wait_until(
        lambda: (api.value("min(timestamp(up))") or 0) > now_s, what="all targets are scraped"
    )


def _demo_config(load: Load, seconds: float) -> DemoConfig:
    documents = read_sound(SAMPLES)
    return DemoConfig(
        nodes=read_nodes(NODES),
        workflows=[d for d in documents if isinstance(d, Workflow)],
        profiles=[d for d in documents if isinstance(d, FunctionProfile)],
        load=load,
        warm_up_s=0.0,
        seconds=seconds,
        cool_down_s=0.0,
        seed=0,
        share="reserved",
        prices=Prices(),
    )


def _configure(
    folder: Path, targets: Sequence[str], scraped_every_s: float, rules: Sequence[Any]
) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": list(rules)}))
    interval = f"{round(scraped_every_s * 1000)}ms"
    configuration = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [
            {"job_name": "esg", "honor_labels": True, "static_configs": [{"targets": targets}]}
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))


def _responds(port: int, path: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/{path}", trust_env=False).is_success
    except httpx.TransportError:
        return False
