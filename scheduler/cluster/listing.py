"""A whole list, page by page, cut down as it comes."""

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
    heard: Callable[[], None],
) -> tuple[deque[Raw], str]:
    """All objects of the resource, trimmed, and the version of the list.

    ``heard`` is called at each page. Of the whole JSON no more than a page is held at a time.

    Raises:
        ClusterError: as `Api.get`; an `ApiError` of status 410 if a page came too late.
    """
    # No resourceVersion is asked for: "any version" could be older than what was already seen, and
    # a grant that was forgotten so would be given twice.
    query: dict[str, Any] = {**selectors, "limit": page}
    listed: deque[Raw] = deque()
    while True:
        text = await api.read(resource.path, query=query)
        heard()
        with _collector_resting():
            items, metadata = _trimmed(text, resource)
        del text
        listed.extend(items)
        if not metadata.get("continue"):
            return listed, metadata["resourceVersion"]
        query["continue"] = metadata["continue"]


def _trimmed(text: bytes, resource: Resource) -> tuple[list[Raw], Raw]:
    """A page's objects, cut down, and its metadata; the rest of it is let go."""
    page = json.loads(text)
    return [resource.trim(item) for item in page["items"] or ()], page["metadata"]


@contextmanager
def _collector_resting() -> Iterator[None]:
    """No cycle collection in the block, which must not await.

    A page is a few hundred thousand containers that live for a moment. The collector, which looks
    at all that the process holds, would run again and again meanwhile: of a list of 20,000 pods it
    took two thirds of the CPU.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
