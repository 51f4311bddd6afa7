"""Watches pods through an API server that may go away and come back."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

RETRY_S = 0.2
LONGEST_EVENT_BYTES = 4 * 2**20
"""Larger than any object that etcd takes; aiohttp's own limit for a line is 64 KiB."""


async def watch_pods(
    http: aiohttp.ClientSession, path: str, *, label_selector: str
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield (event, pod) for every change, for ever, in the API server's order.

    After a lost connection the pods are listed again: what changed meanwhile is yielded as
    MODIFIED (or ADDED), what vanished as DELETED with its last known state.

    Args:
        http: a session with the server's URL as base, and `read_bufsize=LONGEST_EVENT_BYTES`.
        path: of the pods of a namespace, or of all.
        label_selector: which pods.
    """
    known: dict[str, dict[str, Any]] = {}
    while True:
        try:
            listed = await _get(http, path, {"labelSelector": label_selector})
            for change in _changes(known, listed["items"]):
                yield change
            query = {
                "labelSelector": label_selector,
                "watch": "true",
                "resourceVersion": listed["metadata"]["resourceVersion"],
            }
            async with http.get(path, params=query, timeout=aiohttp.ClientTimeout()) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":  # the version is too old by now: list again
                        break
                    pod = event["object"]
                    if event["type"] == "DELETED":
                        known.pop(pod["metadata"]["uid"], None)
                    else:
                        known[pod["metadata"]["uid"]] = pod
                    yield event["type"], pod
        except (aiohttp.ClientError, TimeoutError, json.JSONDecodeError):
            await asyncio.sleep(RETRY_S)


def _changes(
    known: dict[str, dict[str, Any]], listed: list[dict[str, Any]]
) -> list[tuple[str, dict[str, Any]]]:
    """What a new list says beyond what was known; `known` is brought up to it."""
    current = {pod["metadata"]["uid"]: pod for pod in listed}
    changes = [("DELETED", pod) for uid, pod in known.items() if uid not in current]
    for uid, pod in current.items():
        before = known.get(uid)
        if before is None:
            changes.append(("ADDED", pod))
        elif before["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]:
            changes.append(("MODIFIED", pod))
    known.clear()
    known.update(current)
    return changes


async def _get(http: aiohttp.ClientSession, path: str, query: dict[str, str]) -> Any:
    async with http.get(path, params=query) as answer:
        answer.raise_for_status()
        return await answer.json()
