"""The image, built by its Dockerfile and run by containerd."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import httpx
import pytest

from tests.node.real_cluster import RealCluster
from tests.node.release import Release
from tests.testbed.image_archive import content_bytes
from tests.testbed.processes import Process

pytestmark = pytest.mark.e2e

READY_TIMEOUT_S = 300
READY_RATIO = 8
"""Limit of the CPU time of the service's start over that of an empty one: far above 10 where Numba
compiles the kernels."""
PORT = 8888
MIB = 2**20
LARGEST_MIB = 500
USER = "65532"
KUBECONFIG = "/opt/kubeconfig"
"""File of the node and of the container: the cluster's administrator."""
SERVICE = ("esg", "serve", f"--kubeconfig={KUBECONFIG}")
EMPTY_SERVICE = f"""
import numpy, uvicorn

async def answer(scope, receive, send):
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body"}})

uvicorn.run(answer, host="0.0.0.0", port={PORT}, lifespan="off")
"""


@pytest.fixture(autouse=True, scope="module")
def _kubeconfig(cluster: RealCluster) -> None:
    """Put the kubeconfig on the node; its API server is an address of the node's network."""
    config = cluster.kind.run(cluster.kind.control_plane, "cat", "/etc/kubernetes/admin.conf")
    (cluster.node.files / KUBECONFIG.lstrip("/")).write_text(config, encoding="utf-8")


@contextmanager
def running(
    cluster: RealCluster, command: Sequence[str] = SERVICE, **environment: str
) -> Iterator[Process]:
    """Run a command in a container of the image, until it is ready and the block ends."""
    variables = {"ESG_HOST": "0.0.0.0", **environment}
    mount = f"type=bind,src={KUBECONFIG},dst={KUBECONFIG},options=rbind:ro"
    options = ["--net-host", f"--mount={mount}"]
    options += [f"--env={name}={value}" for name, value in variables.items()]
    with cluster.container("image", list(command), *options) as container:
        container.wait_ready(lambda: is_ready(cluster), timeout_s=READY_TIMEOUT_S)
        yield container


def is_ready(cluster: RealCluster) -> bool:
    url = f"http://{cluster.node.address}:{PORT}/readyz"
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def start_cpu_s(cluster: RealCluster, command: Sequence[str]) -> float:
    """CPU time of the container's process until its service is ready."""
    with running(cluster, command):
        stat = cluster.node.run("cat", f"{cluster.proc('image')}/stat")
    user_ticks, system_ticks = stat.rpartition(")")[2].split()[11:13]  # the name may have blanks
    return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")


def test_the_image_is_small(cluster: RealCluster, summarize: Callable[[str], None]) -> None:
    """The end of the run's output has its size."""
    size_mib = content_bytes(cluster.image) / MIB
    summarize(f"the image has {size_mib:.0f} MiB")
    assert size_mib < LARGEST_MIB


def test_a_start_loads_the_kernels_of_the_image(
    release: Release, summarize: Callable[[str], None]
) -> None:
    """The service starts about as cheaply as an empty one: no kernel is compiled; no user is root.

    The release has installed the CustomResourceDefinitions, which the service waits for.
    """
    cluster = release.cluster
    with running(cluster):  # the disk's first read is over
        assert user_of(cluster, "image") == USER
    empty_s = start_cpu_s(cluster, ("python", "-c", EMPTY_SERVICE))
    ready_s = start_cpu_s(cluster, SERVICE)
    summarize(f"`esg serve` is ready after {ready_s:.2f} s of CPU time, an empty service "
         f"after {empty_s:.2f} s")  # fmt: skip
    assert ready_s < READY_RATIO * empty_s


def test_data_path_and_kernels_are_compiled(cluster: RealCluster) -> None:
    """They are extensions in the image, and load there; the image has no Numba."""
    printing = """
from scheduler.gateway.serving import runtime
from scheduler.placement import kernels
from scheduler.search.frontiers import reduction_kernels
print(runtime.__file__, kernels.__file__, reduction_kernels.__file__, flush=True)
"""
    with running(cluster, ("python", "-c", f"{printing}{EMPTY_SERVICE}")) as container:
        log = container.log.read_text(encoding="utf-8")
    assert "/gateway/serving/runtime.cpython-" in log
    assert "/placement/kernels.cpython-" in log
    assert "/search/frontiers/reduction_kernels.cpython-" in log


def user_of(cluster: RealCluster, container: str) -> str:
    """Return the user of the container's first process."""
    status = cluster.node.run("cat", f"{cluster.proc(container)}/status")
    [line] = [line for line in status.splitlines() if line.startswith("Uid:")]
    return line.split()[1]
