"""Series of GPUs: a scrape of a large fleet costs what has changed since the last one."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.placement.options import Limits
from scheduler.planning import gpu_series
from scheduler.planning.gpu_series import GpuSeries

LIMITS = Limits(100, 1024, 48)


def fleet_node(name, gpus=2, memory_mib=40_960):
    return Node(
        name,
        tuple(Gpu(
            index=i, uuid=f'GPU-{name}-"{i}"', model="A100", memory_mib=memory_mib,
            multiprocessors=108, healthy=True,
        ) for i in range(gpus)),
        8000,
    )  # fmt: skip


def reservation(uid, node, percent):
    return Reservation(
        uid=uid, namespace="space", name=uid, node=node, cpu_milli=1000, gpu_uuid=f'GPU-{node}-"0"',
        gpu_percent=percent, memory_mib=percent, batch=1, function="f", priority=0,
    )  # fmt: skip


async def scraped(series, ledger):
    return b"".join([part async for part in series.exposition(ledger.fleet, LIMITS)])


def values(text, name):
    """Map node and index of each GPU to its value."""
    return {
        (sample.labels["node"], sample.labels["gpu"][-2]): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == name
    }


@pytest.fixture
def rendered(monkeypatch):
    """List the names of the nodes that are rendered."""
    names = []
    lines = gpu_series._lines
    monkeypatch.setattr(
        gpu_series, "_lines", lambda node, *rest: names.append(node.name) or lines(node, *rest)
    )
    return names


async def test_granted_share_and_memory():
    """The memory that is kept for the MPS server is not granted."""
    ledger = Ledger(LIMITS)
    ledger.set_node(fleet_node("n"))
    ledger.confirm(reservation("a", "n", 30))
    text = await scraped(GpuSeries(), ledger)
    assert values(text, "esg_gpu_granted_ratio") == {("n", "0"): 0.3, ("n", "1"): 0}
    assert values(text, "esg_gpu_granted_bytes") == {("n", "0"): 30 * 2**20, ("n", "1"): 0}


async def test_scrape_renders_only_what_changed(rendered):
    """Two of a thousand nodes: the one with a new grant, and the one with a changed GPU."""
    ledger, series = Ledger(LIMITS), GpuSeries()
    for number in range(1000):
        ledger.set_node(fleet_node(f"n{number}"))
    await scraped(series, ledger)
    assert len(rendered) == 1000
    rendered.clear()
    ledger.confirm(reservation("a", "n3", 30))
    ledger.set_node(fleet_node("n7", memory_mib=81_920))
    ledger.remove_node("n9")
    text = await scraped(series, ledger)
    assert rendered == ["n3", "n7"]
    assert values(text, "esg_gpu_granted_ratio")["n3", "0"] == 0.3
    assert ("n9", "0") not in values(text, "esg_gpu_granted_ratio")


async def test_other_tasks_run_during_the_first_scrape(rendered):
    """Between two turns of the event loop a small part of the nodes is rendered."""
    ledger = Ledger(LIMITS)
    for number in range(1000):
        ledger.set_node(fleet_node(f"n{number}"))
    turns = [0]

    async def note_turns():
        while True:
            turns.append(len(rendered))
            await asyncio.sleep(0)

    noting = asyncio.create_task(note_turns())
    await scraped(GpuSeries(), ledger)
    noting.cancel()
    steps = [after - before for before, after in pairwise(turns)]
    assert max(steps) <= gpu_series._CHANGED_SLICE


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["set", "remove", "grant", "release"]),
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(st.lists(_CHANGES, max_size=4))
async def test_text_does_not_depend_on_earlier_scrapes(scrapes):
    """After any changes it is what a new process would show."""
    ledger, series = Ledger(LIMITS), GpuSeries()
    for changes in scrapes:
        for change, name, number in changes:
            match change:
                case "set":
                    ledger.set_node(fleet_node(name, gpus=number))
                case "remove":
                    ledger.remove_node(name)
                case "grant":
                    ledger.confirm(reservation(f"{name}{number}", name, 10 * number + 1))
                case "release":
                    ledger.release(f"{name}{number}")
        assert await scraped(series, ledger) == await scraped(GpuSeries(), ledger)
