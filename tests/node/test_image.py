"""The image, built by its Dockerfile and run by containerd."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import httpx
import pytest

from tests.node.real_cluster import RealCluster
from tests.node.release import Release
from tests.testbed import REPOSITORY, images
from tests.testbed.image_archive import content_bytes
from tests.testbed.processes import Process

pytestmark = pytest.mark.e2e

READY_WITHIN_S = 5
PORT = 8888
MIB = 2**20
LARGEST_MIB = 700
"""LLVM, which Numba compiles with, is a quarter of it."""
USER = "65532"


@contextmanager
def served(cluster: RealCluster, **environment: str) -> Iterator[Process]:
    """`esg serve` in a container, over nodes from a file."""
    runtime = cluster.node.runtime
    container = runtime.container(
        "image",
        f"{images.PROJECT}:{images.version()}",
        [
            *("esg", "serve", "--embedded", "/deploy/nodes/mocked-16x1.yaml"),
            *("--profiles", "/deploy/samples"),
        ],
        environment={"ESG_HOST": "0.0.0.0", **environment},
        folder=REPOSITORY / "deploy",
    )
    container.start()
    try:
        yield container
    finally:
        runtime.ctr("tasks", "kill", "--signal", "SIGKILL", "image")
        container.wait_ended(timeout_s=20)


def is_ready(cluster: RealCluster) -> Callable[[], bool]:
    url = f"http://{cluster.node.machine.network.machine}:{PORT}/readyz"

    def asked() -> bool:
        try:
            return httpx.get(url, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    return asked


def test_it_is_small(cluster: RealCluster, tell: Callable[[str], None]) -> None:
    """Its size is told at the end of the run."""
    size_mib = content_bytes(images.project_image()) / MIB
    tell(f"the image has {size_mib:.0f} MiB")
    assert size_mib < LARGEST_MIB


def test_it_starts_ready_within_seconds_from_the_kernels_that_it_brings(
    cluster: RealCluster, tell: Callable[[str], None]
) -> None:
    """Every kernel is loaded from its cache, none is compiled, and the user is not root."""
    with served(cluster) as container:  # what is read from the disk for the first time is in memory
        container.wait_ready(is_ready(cluster), timeout_s=60)
    began = time.monotonic()
    with served(cluster) as container:
        container.wait_ready(is_ready(cluster), timeout_s=60)
        ready_s = time.monotonic() - began
        assert user_of(cluster, "image") == USER
    tell(f"`esg serve` is ready {ready_s:.2f} s after its container is asked for")
    assert ready_s < READY_WITHIN_S


def test_no_kernel_is_compiled_at_a_start(cluster: RealCluster) -> None:
    """Numba itself says what it does with its cache."""
    with served(cluster, NUMBA_DEBUG_CACHE="1") as container:
        container.wait_ready(is_ready(cluster), timeout_s=60)
        said = container.log.read_text(encoding="utf-8")
    assert "[cache] data loaded from '/var/cache/esg-numba/" in said
    assert "[cache] data saved" not in said
    assert "[cache] index saved" not in said


def test_the_chart_s_copy_of_the_kernels_is_what_a_replica_loads(
    cluster: RealCluster, release: Release
) -> None:
    """Numba has written nothing into the volume, and has not been compiling for long either."""
    for pod in release.pods("scheduler"):
        created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
        copy = cluster.empty_dir(pod, "cache")
        written = [path.stat().st_mtime for path in copy.rglob("*.nb[ci]")]
        assert written
        assert max(written) < created
        took_s = re.search(r"kernels are ready +seconds=([0-9.]+)", cluster.log(pod, "extender"))
        assert took_s is not None
        assert float(took_s[1]) < READY_WITHIN_S


def user_of(cluster: RealCluster, container: str) -> str:
    """The user that the container's first process runs as."""
    status = cluster.node.machine.run("cat", f"{cluster.proc(container)}/status")
    [line] = [line for line in status.splitlines() if line.startswith("Uid:")]
    return line.split()[1]
