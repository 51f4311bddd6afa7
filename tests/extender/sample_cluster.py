"""An API server in memory with the sample nodes and documents, for processes of ``esg``."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal

from scheduler.model.yaml_parser import parse_yaml
from tests.testbed import REPOSITORY
from workbench.cluster.api_requests import FUNCTION_PROFILES, KINDS, NODES, WORKFLOWS
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.object_store import ObjectStore

_FILES = {
    NODES: "nodes/mocked-16x1.yaml",
    FUNCTION_PROFILES: "samples/profiles.yaml",
    WORKFLOWS: "samples/workflows.yaml",
}


@contextmanager
def sample_cluster(folder: Path, store: ObjectStore | None = None) -> Iterator[Path]:
    """Run the API server in a thread while inside; yield its kubeconfig, a file of the folder."""
    store = store or ObjectStore(KINDS)
    for path, file in _FILES.items():
        for item in parse_yaml((REPOSITORY / "deploy" / file).read_text(encoding="utf-8")):
            store.create(path, item)
    kubeconfig = folder / "kubeconfig"
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(ApiServer(store).serving()) as url,
    ):
        write_kubeconfig(kubeconfig, url)
        yield kubeconfig


def unserved_kubeconfig(folder: Path) -> Path:
    """Write a kubeconfig whose API server does not run, for a process that ends before."""
    write_kubeconfig(kubeconfig := folder / "kubeconfig", "http://127.0.0.1:1")
    return kubeconfig


def until_ready(client: httpx.Client, url: str = "/readyz") -> None:
    """Wait until a process answers that it is ready; it may have to compile the kernels first."""
    deadline_s = time.monotonic() + 300
    while time.monotonic() < deadline_s:
        try:
            if client.get(url).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(url)
