"""A watch of pods that survives outages of the API server.

A watch ends often: a watch that started in an empty cluster has a buffer of ten events, and the
server cuts it when a burst fills the buffer for longer than about 50 ms. A cut watch resumes from
its last version and misses nothing. If the server has lost that version (after a restart), the
watch lists the pods again and misses the states between.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

RETRY_S = 0.2
GONE = 410
LONGEST_EVENT_BYTES = 4 * 2**20
"""Larger than any object that etcd accepts; aiohttp's own limit of a line is 64 KiB."""

Pod = dict[str, Any]


async def watch_pods(
    http: aiohttp.ClientSession, path: str, *, label_selector: str
) -> AsyncIterator[tuple[str, Pod]]:
    """Yield (event, pod) for every change, without end, in the API server's order.

    After a new list, changed pods are ADDED or MODIFIED, and missing pods are DELETED with their
    last known state.

    Args:
        http: a session with the server's URL as base, and `read_bufsize=LONGEST_EVENT_BYTES`.
        path: path of the pods of a namespace, or of all.
        label_selector: selects the pods.
    """
    known: dict[str, Pod] = {}
    version = ""
    while True:
        try:
            if not version:
                async with http.get(path, params={"labelSelector": label_selector}) as answer:
                    answer.raise_for_status()
                    listed = await answer.json()
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
    """The server no longer has the version from which the watch resumes."""


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
    """Return the changes between `known` and a new list; update `known`.

    Ended pods come first, the others in the order of their last writes: the states between are
    lost, and a pod must not seem to share a GPU with a pod that ended before it started.
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
    return sorted(changes, key=_reservation_and_version)


def _reservation_and_version(change: tuple[str, Pod]) -> tuple[bool, int]:
    event, pod = change
    reserves = event != "DELETED" and pod["status"].get("phase") not in {"Succeeded", "Failed"}
    return reserves, int(pod["metadata"]["resourceVersion"])
