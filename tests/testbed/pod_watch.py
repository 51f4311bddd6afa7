"""Watches pods through an API server that may go away and come back.

A watch ends often: the server gives a watcher that was opened in an empty cluster room for ten
events, and cuts it when a burst fills that for longer than some 50 ms. So a cut watch goes on from
the last version that it saw, and nothing is missed; only where the server has forgotten that
version (after a restart) are the pods listed again, and states in between lost.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

RETRY_S = 0.2
GONE = 410
LONGEST_EVENT_BYTES = 4 * 2**20
"""Larger than any object that etcd takes; aiohttp's own limit for a line is 64 KiB."""

Pod = dict[str, Any]


async def watch_pods(
    http: aiohttp.ClientSession, path: str, *, label_selector: str
) -> AsyncIterator[tuple[str, Pod]]:
    """Yield (event, pod) for every change, for ever, in the API server's order.

    After a new list, what changed meanwhile is yielded as ADDED or MODIFIED, what vanished as
    DELETED with its last known state.

    Args:
        http: a session with the server's URL as base, and `read_bufsize=LONGEST_EVENT_BYTES`.
        path: of the pods of a namespace, or of all.
        label_selector: which pods.
    """
    known: dict[str, Pod] = {}
    version = ""
    while True:
        try:
            if not version:
                listed = await _get(http, path, {"labelSelector": label_selector})
                for change in _changes(known, listed["items"]):
                    yield change
                version = listed["metadata"]["resourceVersion"]
            async for event, pod in _watch_once(http, path, label_selector, version):
                version = pod["metadata"]["resourceVersion"]
                if event == "DELETED":
                    known.pop(pod["metadata"]["uid"], None)
                else:
                    known[pod["metadata"]["uid"]] = pod
                yield event, pod
        except _VersionGoneError:
            version = ""
        except (aiohttp.ClientError, TimeoutError, json.JSONDecodeError):
            await asyncio.sleep(RETRY_S)


class _VersionGoneError(Exception):
    """The server does not remember the version that the watch was to go on from."""


async def _watch_once(
    http: aiohttp.ClientSession, path: str, label_selector: str, version: str
) -> AsyncIterator[tuple[str, Pod]]:
    query = {"labelSelector": label_selector, "watch": "true", "resourceVersion": version}
    async with http.get(path, params=query, timeout=aiohttp.ClientTimeout()) as answer:
        if answer.status == GONE:
            raise _VersionGoneError
        answer.raise_for_status()
        async for line in answer.content:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise _VersionGoneError
            yield event["type"], event["object"]


def _changes(known: dict[str, Pod], listed: list[Pod]) -> list[tuple[str, Pod]]:
    """What a new list says beyond what was known; `known` is brought up to it.

    What ended comes first, the rest in the order of the last writes: how the states between came
    about is lost, and a pod must not seem to share a GPU with one that had made room for it.
    """
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
    return sorted(changes, key=_holds_and_version)


def _holds_and_version(change: tuple[str, Pod]) -> tuple[bool, int]:
    event, pod = change
    holds = event != "DELETED" and pod["status"].get("phase") not in {"Succeeded", "Failed"}
    return holds, int(pod["metadata"]["resourceVersion"])


async def _get(http: aiohttp.ClientSession, path: str, query: dict[str, str]) -> Any:
    async with http.get(path, params=query) as answer:
        answer.raise_for_status()
        return await answer.json()
