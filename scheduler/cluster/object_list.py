"""A whole list, page by page, trimmed page by page."""

import gc
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.resource import Resource


async def list_all(
    api: Api,
    resource: Resource,
    *,
    selectors: Mapping[str, str],
    page: int,
    on_page: Callable[[], None] = lambda: None,
) -> tuple[deque[Raw], str]:
    """List all objects of the resource, trimmed; return them and the version of the list.

    ``on_page`` is called for each page. Only one page of the raw JSON is in memory at a time.

    Raises:
        ClusterError: like `Api.get`; an `ApiError` of status 410 if a page comes too late.
    """
    # Without a resourceVersion: "any version" could be older than the last one received, and a
    # grant that it lacks would be given a second time.
    query: dict[str, Any] = {**selectors, "limit": page}
    listed: deque[Raw] = deque()
    while True:
        text = await api.read(resource.path, query=query)
        on_page()
        with _gc_paused():
            items, metadata = _trimmed(text, resource)
        del text
        listed.extend(items)
        if not metadata.get("continue"):
            return listed, metadata["resourceVersion"]
        query["continue"] = metadata["continue"]


def _trimmed(text: bytes, resource: Resource) -> tuple[list[Raw], Raw]:
    """Parse and trim a page; return its objects and its metadata."""
    page = json.loads(text)
    return [resource.trim(item) for item in page["items"] or ()], page["metadata"]


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause the garbage collector in the block, which must not await.

    A page is a few hundred thousand short-lived containers. The collector, which traverses all
    objects of the process, would run again and again: it took two thirds of the CPU of a list of
    20,000 pods.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
