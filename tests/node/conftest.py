"""The real node's fixtures: one cluster for the folder, and the chart on it."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.node.functions import Deploy, Function, deployment
from tests.node.real_cluster import RealCluster, real_cluster
from tests.node.release import Release
from tests.testbed.machine_needs import missing_for_a_node

_TOLD = pytest.StashKey[list[str]]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tell the figures that were seen, whether or not a bound was missed."""
    for line in config.stash.get(_TOLD, []):
        terminalreporter.write_line(line)


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that has a line written at the end of the run."""
    return request.config.stash.setdefault(_TOLD, []).append


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """A cluster with a real node; where the machine cannot have one, a line says what it lacks.

    Under `CI=true` that is an error: a run that skipped this would prove nothing.
    """
    if lacking := missing_for_a_node():
        if os.environ.get("CI") == "true":
            raise FileNotFoundError(lacking)
        pytest.skip(lacking)
    with real_cluster() as made:
        yield made


@pytest.fixture
def fresh_release(cluster: RealCluster) -> Iterator[Release]:
    """One that is not installed yet; gone afterwards at the latest."""
    made = Release(cluster)
    made.uninstall()
    try:
        yield made
    finally:
        made.uninstall()


@pytest.fixture
def deploy(release: Release) -> Iterator[Deploy]:
    """A function that makes a Deployment of the sample function; it is deleted afterwards."""
    release.documents()
    made: list[Function] = []

    def make(name: str, **environment: str) -> Function:
        made.append(Function(release.cluster, deployment(name, **environment)))
        return made[-1]

    yield make
    for function in made:
        function.delete()


@pytest.fixture
def release(cluster: RealCluster) -> Release:
    """The chart, installed, with both replicas and the node's agent ready.

    One installation serves all tests, unless one has taken it away; it ends with the cluster.
    """
    made = Release(cluster)
    if not made.is_installed():
        made.install("install")
    made.until_ready()
    return made
