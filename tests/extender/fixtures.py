"""The service under test, for the conftest.py of each folder that uses it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.extender.bindings import BindingHarness, binding_harness
from tests.extender.factories import nodes_and_documents, pod
from tests.extender.harness import Clock, Extender, embedded


@pytest.fixture
def clock() -> Clock:
    """Virtual time: the service's only clock."""
    return Clock()


@pytest.fixture
def extender(clock: Clock) -> Iterator[Extender]:
    """A service of one test, over two nodes of two GPUs and one without."""
    with embedded(**nodes_and_documents(), clock=clock) as running:
        yield running


@pytest.fixture(scope="module")
def shared() -> Iterator[Extender]:
    """One service for a whole file, for tests that leave nothing behind; 4 MiB per body."""
    with embedded(**nodes_and_documents(), clock=Clock(), body_max_mib=4) as running:
        yield running


@pytest.fixture
def goes_on(shared: Extender) -> Iterator[None]:
    """After the test a valid filter call is answered as before."""
    yield
    answer = shared.filter(pod("half"), "n1", "bare")
    assert answer["NodeNames"] == ["n1"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["bare"]


@pytest.fixture
def wall() -> Clock:
    """Time of day of a binder."""
    return Clock()


@pytest.fixture
def monotonic() -> Clock:
    """Monotonic time of a binder."""
    return Clock(1_000.0)


@pytest.fixture
async def binder(
    wall: Clock, monotonic: Clock, tmp_path: Path, loopback_http: None
) -> AsyncIterator[BindingHarness]:
    """A binder of one test, over two nodes of one GPU."""
    async with binding_harness(tmp_path, wall=wall, monotonic=monotonic) as running:
        yield running
