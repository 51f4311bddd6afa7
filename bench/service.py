"""The service over many nodes and pods, in its own process, as the benchmarks start it.

    python -m bench.service NODES GPUS PODS PORT

It is what ``esg serve --embedded`` runs, with two differences: nodes and bound pods come one at a
time, as JSON, through the handlers that the reflector feeds, after the reflector's own trimming;
and none of them is kept beside what the handlers keep.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import Popen
from urllib.error import URLError
from urllib.request import urlopen

from bench import synthetic_load
from scheduler.cli.logs import configure_logging
from scheduler.cli.reading import read_paths
from scheduler.cli.serve import run
from scheduler.cluster.embedded import EmbeddedCluster
from scheduler.cluster.link import ClusterLink, Handlers
from scheduler.cluster.resource import trim_node, trim_pod
from scheduler.extender.app import create_app
from scheduler.extender.service import Service
from scheduler.model.documents import FunctionProfile, Workflow, to_manifest
from scheduler.settings import Settings

SAMPLES = Path(__file__).parents[1] / "deploy" / "samples"
_START_S = 120.0
_TURN = 100  # pods fed between two turns of the event loop


def documents() -> tuple[list[Workflow], list[FunctionProfile]]:
    """The sample documents."""
    found = [document for _, document in read_paths([SAMPLES]).documents]
    return (
        [each for each in found if isinstance(each, Workflow)],
        [each for each in found if isinstance(each, FunctionProfile)],
    )


def main(node_count: int, gpus: int, pods: int, port: int) -> None:
    """Serve until a signal ends it."""
    settings = Settings(port=port, log_level="warning")
    configure_logging(settings.log_level, as_json=settings.log_json)
    workflows, profiles = documents()
    clusters: list[EmbeddedCluster] = []

    @asynccontextmanager
    async def connect(handlers: Handlers) -> AsyncIterator[ClusterLink]:
        names = [{"metadata": {"name": synthetic_load.node_name(i)}} for i in range(node_count)]
        clusters.append(EmbeddedCluster(names, handlers))
        for node in [json.dumps(node) for node in synthetic_load.nodes(node_count, gpus)]:
            handlers.nodes.upsert(trim_node(json.loads(node)))
        for number, pod in enumerate(
            synthetic_load.bound_pods(workflows, profiles, node_count, gpus, pods)
        ):
            handlers.pods.upsert(trim_pod(json.loads(pod)))
            if number % _TURN == 0:
                await asyncio.sleep(0)
        yield clusters[-1]

    service = Service(
        settings, connect=connect, on_filter=lambda pod: clusters[-1].upsert_pod(dict(pod))
    )
    service.state.workflows.replace(to_manifest(each) for each in workflows)
    service.state.profiles.replace(to_manifest(each) for each in profiles)
    run(create_app(service), service)


@contextmanager
def serving(node_count: int, gpus: int, pods: int, port: int) -> Iterator[Popen[bytes]]:
    """The service in another process, ready; it is stopped, by its id, at the end."""
    arguments = [str(each) for each in (node_count, gpus, pods, port)]
    with Popen([sys.executable, "-m", "bench.service", *arguments]) as process:
        try:
            _wait_ready(process, port)
            yield process
        finally:
            process.terminate()


def _wait_ready(process: Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
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
