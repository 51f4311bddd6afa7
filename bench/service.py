"""The service over many nodes and pods, in its own process, for the benchmarks.

    python -m bench.service NODES GPUS PODS PORT

It is the service over the tests' embedded cluster, with two differences: nodes and bound pods
arrive one at a time, as JSON, at the handlers of the reflector, after the reflector's own trimming;
and only the handlers store them.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from urllib.error import URLError
from urllib.request import urlopen

from bench import synthetic_load
from scheduler.cli.document_files import read_paths
from scheduler.cli.logs import configure_logging
from scheduler.cli.serve import run
from scheduler.cluster.resource import trim_node, trim_pod
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.planning.service import PlanningService
from scheduler.server import event_loop
from scheduler.server.open_files import raise_open_files_limit
from scheduler.settings import Settings
from tests.extender.embedded_cluster import EmbeddedCluster
from tests.extender.embedded_service import EmbeddedService

SAMPLES = Path(__file__).parents[1] / "deploy" / "samples"
_START_S = 600.0


def documents() -> tuple[list[Workflow], list[FunctionProfile]]:
    """Read the sample documents."""
    documents = [document for _, document in read_paths([SAMPLES]).documents]
    return (
        [document for document in documents if isinstance(document, Workflow)],
        [document for document in documents if isinstance(document, FunctionProfile)],
    )


def main(node_count: int, gpus: int, pods: int, port: int) -> None:
    """Serve until a signal."""
    settings = Settings(port=port, log_level="warning")
    configure_logging(settings.log_level, as_json=settings.log_json)
    workflows, profiles = documents()
    names = [{"metadata": {"name": synthetic_load.node_name(i)}} for i in range(node_count)]
    planning = PlanningService(settings, EmbeddedCluster(names))
    service = EmbeddedService(planning, [*workflows, *profiles])
    for node in [json.dumps(node) for node in synthetic_load.nodes(node_count, gpus)]:
        service.state.nodes.upsert(trim_node(json.loads(node)))
    for pod in synthetic_load.bound_pods(workflows, profiles, node_count, gpus, pods):
        service.state.pods.upsert(trim_pod(json.loads(pod)))
    raise_open_files_limit()
    event_loop.run(run(service))


@contextmanager
def serving(
    node_count: int, gpus: int, pods: int, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[Popen[bytes]]:
    """Run the service in another process; entered when it is ready, terminated at the end."""
    arguments = [str(argument) for argument in (node_count, gpus, pods, port)]
    command = [sys.executable, "-m", "bench.service", *arguments]
    with Popen(command, env=os.environ | dict(environment or {})) as process:
        try:
            _wait_ready(process, port)
            yield process
        finally:
            process.terminate()


def _wait_ready(process: Popen[bytes], port: int) -> None:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with status {process.returncode}")
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (URLError, TimeoutError):
            time.sleep(0.1)
    raise RuntimeError(f"the service was not ready after {_START_S:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
