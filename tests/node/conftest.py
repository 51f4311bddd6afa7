"""Fixtures of the real node: one cluster for the folder, and the chart on it."""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.node.functions import PODS, Deploy, Function, deployment
from tests.node.mlserver import POOL, PROFILE, SETTINGS_MAP, WORKFLOW, Gateway, server
from tests.node.real_cluster import NAME, RealCluster, real_cluster
from tests.node.release import Release
from tests.node.situation import situation
from tests.testbed import images
from tests.testbed.api import wait_until
from tests.testbed.fixtures import EXTERNAL_KUBECONFIG
from tests.testbed.kind import NAME_VARIABLE
from tests.testbed.kind_cluster import KindCluster

_SUMMARY_LINES = pytest.StashKey[list[str]]()
_CLUSTER = pytest.StashKey[RealCluster]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the situation of the cluster to the report of a failure."""
    report = yield
    cluster = item.config.stash.get(_CLUSTER, None)
    if report.failed and cluster is not None:
        report.sections.append((f"the cluster after {report.when}", situation(cluster.api)))
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Write the measured values, also after failures."""
    for line in config.stash.get(_SUMMARY_LINES, []):
        terminalreporter.write_line(line)


@pytest.fixture
def summarize(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that adds a line to the end of the run's output."""
    return request.config.stash.setdefault(_SUMMARY_LINES, []).append


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[RealCluster]:
    """The kind cluster of this run (`make test-node`); without one the tests are skipped.

    Under `CI=true` that is an error: a run without these tests would prove nothing.
    """
    name = os.environ.get(NAME_VARIABLE)
    if name is None:
        reason = "no kind cluster: run `make test-node`, which creates one"
        if os.environ.get("CI") == "true":
            raise LookupError(reason)
        pytest.skip(reason)
    with real_cluster(KindCluster(name, Path(os.environ[EXTERNAL_KUBECONFIG]))) as cluster:
        pytestconfig.stash[_CLUSTER] = cluster
        yield cluster
        del pytestconfig.stash[_CLUSTER]
        Release(cluster).uninstall()  # further suites run on the cluster


@pytest.fixture
def fresh_release(cluster: RealCluster) -> Iterator[Release]:
    """A release that is not installed yet; uninstalled afterwards."""
    release = Release(cluster)
    release.remove()
    try:
        yield release
    finally:
        release.uninstall()


@pytest.fixture
def deploy(release: Release) -> Iterator[Deploy]:
    """A function that creates a Deployment of the sample function; deleted afterwards."""
    release.documents()
    functions: list[Function] = []

    def create(name: str, **environment: str) -> Function:
        functions.append(Function(release.cluster, deployment(name, **environment)))
        return functions[-1]

    yield create
    for function in functions:
        function.delete()


@pytest.fixture
def release(cluster: RealCluster) -> Release:
    """The installed chart, with both replicas and the node's agent ready.

    All tests share one installation, unless a test has uninstalled it; it ends with the session.
    """
    release = Release(cluster)
    release.ensure_installed()
    return release


@pytest.fixture(scope="session")
def _mlserver(cluster: RealCluster) -> None:
    """Load the image of MLServer into the node."""
    cluster.kind.load(images.mlserver_image(), [NAME])


@pytest.fixture
def mlserver_gateway(release: Release, _mlserver: None) -> Iterator[Gateway]:
    """The gateway with the settings of MLServer; all pods of the model end afterwards."""
    release.api.apply(SETTINGS_MAP)
    yield Gateway(release)
    for document in (server(), SETTINGS_MAP, PROFILE, WORKFLOW):
        release.api.delete(release.api.path(document))
    wait_until(lambda: not release.api.items(PODS, labelSelector=POOL), what="its pods are deleted")
