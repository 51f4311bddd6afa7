"""Bodies that a client of the webhook may send: none of them occupies it."""

import asyncio
import json

import httpx
import pytest

from scheduler.webhook import review_body
from scheduler.webhook.app import create_webhook
from scheduler.webhook.metrics import WebhookMetrics
from tests.webhook.factories import admission, pod, review


@pytest.fixture
def client():
    app = create_webhook(admission(), WebhookMetrics())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://hook")


def padded(size):
    """A review of about that many bytes, most of them in an annotation."""
    return json.dumps(review(pod(annotations={"a": "x" * size}))).encode()


class Body:
    """A body that arrives when the test says so.

    Attributes:
        started: event that is set when the server reads the body.
        finish: event that the test sets to send the remaining bytes.
    """

    def __init__(self, content, first):
        self._parts = content[:first], content[first:]
        self.started = asyncio.Event()
        self.finish = asyncio.Event()

    async def __aiter__(self):
        yield self._parts[0]
        self.started.set()
        await self.finish.wait()
        yield self._parts[1]


@pytest.mark.parametrize("part", ["[],", "{},", '{"a":[]},', "[" * 50 + "]" * 50 + ","])
async def test_body_of_nothing_but_structure_is_refused_unparsed(client, part, monkeypatch):
    """4 MiB of it would occupy the event loop for most of a second."""
    monkeypatch.setattr("scheduler.webhook.app._REVIEW", None)  # parsing would be an error
    junk = part * (3 * 2**20 // len(part))
    answer = await client.post("/mutate", content=f'{{"request": [{junk}0]}}'.encode())
    assert answer.status_code == 413
    assert "more than 100,000 objects and lists" in answer.json()["detail"]


async def test_largest_pod_of_an_api_server_is_admitted(client):
    """An API server takes objects of up to 3 MiB."""
    answer = await client.post("/mutate", content=padded(3 * 2**20))
    assert answer.json()["response"]["allowed"]


@pytest.mark.parametrize("length", ["-1", "+1", "abc", str(10**30), "4194305"])
async def test_announced_length_is_not_trusted(client, length):
    """A body that announces too much is refused unread; any other announcement says nothing."""
    content = padded(10)
    answer = await client.post("/mutate", content=content, headers={"content-length": length})
    assert answer.status_code == (413 if length.isdecimal() else 200)


async def test_few_large_bodies_are_in_memory_at_once(monkeypatch):
    """Further ones wait for their turn, while usual pods are admitted."""
    monkeypatch.setattr(review_body, "LARGE_AT_ONCE", 2)
    app = create_webhook(admission(), WebhookMetrics())
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://hook") as client:
        large = [Body(padded(200_000), 100_000) for _ in range(3)]
        calls = [asyncio.create_task(client.post("/mutate", content=body)) for body in large]
        await asyncio.gather(*(body.started.wait() for body in large[:2]))
        large[2].finish.set()
        answer = await client.post("/mutate", json=review(pod()))
        assert answer.json()["response"]["allowed"]
        assert not calls[2].done()
        for body in large:
            body.finish.set()
        answers = await asyncio.gather(*calls)
        assert all(answer.json()["response"]["allowed"] for answer in answers)


async def test_slow_body_ends(client, monkeypatch):
    """It must not keep its place in the memory for good."""
    monkeypatch.setattr(review_body, "BODY_S", 0.01)
    answer = await client.post("/mutate", content=Body(padded(100), 50))
    assert answer.status_code == 408
    assert "did not arrive within" in answer.json()["detail"]
