"""The wait for the ends of all pods after the last request."""

import asyncio

from workbench.cluster.api_requests import PODS
from workbench.demo.cluster import DemoCluster


def cluster_of(store):
    return DemoCluster(
        programs=None, store=store, gateway=("", 0), page="", metrics=("", ""), model_pods=None
    )


async def test_it_ends_with_the_last_pod(store):
    """Long before its limit."""
    for name in ("a", "b"):
        store.create(PODS, {"metadata": {"name": name, "namespace": "n"}})
    waiting = asyncio.create_task(cluster_of(store).wait_until_empty(3600.0))
    for name in ("a", "b"):
        await asyncio.sleep(0)
        assert not waiting.done()
        store.delete(PODS, ("n", name))
    async with asyncio.timeout(60):
        await waiting


async def test_it_ends_at_its_limit(store):
    """Pods that stay are part of the summary."""
    store.create(PODS, {"metadata": {"name": "a", "namespace": "n"}})
    await cluster_of(store).wait_until_empty(0.0)
    assert store.list(PODS)
