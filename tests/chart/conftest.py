"""The chart's tests want Helm, which the test bed builds with Go; some want a control plane."""

import os
from collections.abc import Iterator

import pytest

from tests.chart.installation import Installation, installed
from tests.testbed import binaries
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]


@pytest.fixture(scope="session")
def helm_is_there() -> None:
    """Skip where Helm is not built yet: that takes minutes. Under ``CI=true`` it is built."""
    if os.environ.get("CI") != "true" and not binaries.is_built("helm"):
        pytest.skip("Helm is not built; `python -m tests.testbed.binaries helm` does, with Go")


@pytest.fixture(scope="session")
def kube_score_is_there() -> None:
    """Skip where kube-score is not built yet. Under ``CI=true`` it is built."""
    if os.environ.get("CI") != "true" and not binaries.is_built("kube-score"):
        pytest.skip("kube-score is not built: `make lint-chart` does, with Go")


@pytest.fixture
def installation(cluster: ControlPlane) -> Iterator[Installation]:
    """The chart with its defaults, on the control plane."""
    with installed(cluster) as made:
        yield made
