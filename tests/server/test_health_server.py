"""The health server's process: its questions to the service, and its own life cycle."""

import asyncio
import json
import os
from contextlib import asynccontextmanager

import httpx
import psutil
import pytest

from scheduler.server import health_process
from scheduler.server.health_process import METRICS, STATE, Channel, HealthApp
from scheduler.server.health_server import HealthServer, HealthSource


class Service:
    """A service whose answers a test sets."""

    def __init__(self):
        self.fatal_error = ""
        self.not_ready_reason = ""
        self.fails = False
        self.exit_error = None
        self.documents, self.lookups = {}, {}

    async def exposition(self):
        if self.fails:
            raise ValueError("no text")
        yield b"a 1\n"
        await asyncio.sleep(0)
        yield b"b 2\n"

    def note_exit(self, task):
        self.exit_error = None if task.cancelled() else task.exception()


@asynccontextmanager
async def serving(service):
    """A running health server, and a client of it."""
    source = HealthSource(
        lambda: service.fatal_error,
        lambda: service.not_ready_reason,
        service.exposition,
        service.documents,
        service.lookups,
    )
    server = HealthServer(source, ("127.0.0.1", 0), service.note_exit)
    async with (
        server.running(),
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}", timeout=30, trust_env=False
        ) as client,
    ):
        yield client


def processes():
    """The health processes of this process."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and health_process.__name__ in child.cmdline()
    ]


async def test_answers_are_those_of_the_service():
    """Each probe has its own reason; the metrics come whole."""
    service = Service()
    service.not_ready_reason = "the first list is not complete"
    async with serving(service) as client:
        paths = ("/readyz", "/healthz", "/metrics")
        ready, health, metrics = [await client.get(path) for path in paths]
    assert (ready.status_code, ready.json()) == (503, {"detail": service.not_ready_reason})
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert metrics.text == "a 1\nb 2\n"
    assert service.exit_error is None


@pytest.mark.slow
async def test_failing_scrape_affects_no_probe():
    """The scrape gets an error; the log has its reason."""
    service = Service()
    service.fails = True
    async with serving(service) as client:
        scrape = await client.get("/metrics")
        assert scrape.status_code == 500
        assert "the log has the reason" in scrape.json()["detail"]
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.slow
async def test_killed_process_is_started_again():
    """The port stays open meanwhile: clients wait."""
    async with serving(Service()) as client:
        assert (await client.get("/healthz")).status_code == 200
        [first] = processes()
        first.kill()
        async with asyncio.timeout(60):
            while [p.pid for p in processes()] in ([], [first.pid]):  # noqa: ASYNC110 - a poll
                await asyncio.sleep(0.05)
        async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as another:
            assert (await another.get("/healthz")).status_code == 200
    assert not processes()


async def test_ctrl_c_is_for_the_service():
    """A terminal sends it to the whole session, and the process may not handle it yet."""
    async with serving(Service()) as client:
        await client.get("/healthz")
        [process] = processes()
        assert os.getsid(process.pid) != os.getsid(0)


class Writer:
    """Records the questions."""

    def __init__(self):
        self.questions = []

    def write(self, question):
        self.questions.append(question)


@pytest.fixture
def clock(monkeypatch):
    """Seconds of a monotonic clock that the test sets."""
    now_s = [0.0]
    monkeypatch.setattr(health_process, "monotonic", lambda: now_s[0])
    return now_s


async def test_all_requests_share_one_question(clock):
    """A flood asks the service no more than a scrape does: 2 % of its time."""
    reader, writer = asyncio.StreamReader(), Writer()
    channel = Channel(reader, writer)
    receiving = asyncio.create_task(channel.receive())
    for number in range(3):
        asking = [asyncio.create_task(channel.answer(METRICS)) for _ in range(1000)]
        await asyncio.sleep(0)
        assert len(writer.questions) == number + 1
        clock[0] += 0.1  # the service takes so long
        text = f"a {number}\n".encode()
        reader.feed_data(METRICS + len(text).to_bytes(4, "big") + text)
        assert set(await asyncio.gather(*asking)) == {text}
        clock[0] += 4.9
        assert await channel.answer(METRICS) == text
        assert len(writer.questions) == number + 1
        clock[0] += 0.2
    receiving.cancel()


async def test_silent_service_is_unhealthy(monkeypatch):
    """A service whose event loop hangs answers no probe itself, and has to be restarted."""
    monkeypatch.setattr(health_process, "ANSWER_S", 0.01)
    channel = Channel(asyncio.StreamReader(), Writer())
    transport = httpx.ASGITransport(HealthApp(channel))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            answer = await client.get(path)
            assert answer.status_code == 503
            assert "the event loop has not answered" in answer.json()["detail"]


async def test_state_does_not_wait_for_metrics():
    """A scrape of a large cluster takes longer than a probe may."""
    reader, writer = asyncio.StreamReader(), Writer()
    channel = Channel(reader, writer)
    receiving = asyncio.create_task(channel.receive())
    scraping = asyncio.create_task(channel.answer(METRICS))
    probing = asyncio.create_task(channel.answer(STATE))
    await asyncio.sleep(0)
    assert writer.questions == [METRICS, STATE]
    state = json.dumps({"/healthz": "", "/readyz": ""}).encode()
    reader.feed_data(STATE + len(state).to_bytes(4, "big") + state)
    assert await probing == state
    assert not scraping.done()
    scraping.cancel()
    receiving.cancel()


async def test_documents_are_json():
    """Each path has its own document; one that fails is an error, and affects no probe."""
    service = Service()

    def broken():
        raise ValueError("no document")

    service.documents = {"/v1/queues": lambda: {"rows": 3}, "/v1/broken": broken}
    async with serving(service) as client:
        assert (await client.get("/v1/queues")).json() == {"rows": 3}
        answer = await client.get("/v1/broken")
        assert answer.status_code == 500
        assert answer.json() == {"detail": "/v1/broken cannot be rendered; the log has the reason"}
        assert (await client.get("/v1/other")).status_code == 404
        assert (await client.get("/healthz")).is_success


@pytest.mark.slow
async def test_documents_are_found_by_name():
    """A name is any text; an unknown one is 404, a long one 400, a failure 500."""
    service = Service()

    def find(name):
        if name == "broken":
            raise ValueError("no document")
        return {"name": name} if name in {"a-1", "ä b", "b/1"} else None

    service.documents = {"/v1/things": lambda: ["a-1"]}
    service.lookups = {"/v1/things/": find}
    async with serving(service) as client:
        assert (await client.get("/v1/things")).json() == ["a-1"]
        assert (await client.get("/v1/things/a-1")).json() == {"name": "a-1"}
        assert (await client.get("/v1/things/ä%20b")).json() == {"name": "ä b"}
        for path in ("b/1", "b%2F1"):
            assert (await client.get(f"/v1/things/{path}")).json() == {"name": "b/1"}
        statuses = {
            name: (await client.get(f"/v1/things/{name}")).status_code
            for name in ("c", "broken", "x" * 600, "")
        }
        assert (await client.post("/v1/things/a-1")).status_code == 405
        assert (await client.get("/healthz")).is_success
    assert statuses == {"c": 404, "broken": 500, "x" * 600: 400, "": 404}


async def test_lookups_take_turns(clock):
    """A flood of different names asks one question at a time, and leaves nothing behind."""
    reader, writer = asyncio.StreamReader(), Writer()
    channel = Channel(reader, writer)
    receiving = asyncio.create_task(channel.receive())
    questions = [health_process.lookup_question(b"\0", str(number)) for number in range(3)]
    looking = [asyncio.create_task(channel.look_up(question)) for question in questions]
    for number, question in enumerate(questions):
        while len(writer.questions) == number:  # noqa: ASYNC110 - turns of the loop
            await asyncio.sleep(0)
        assert writer.questions == questions[: number + 1]
        reader.feed_data(question + (2).to_bytes(4, "big") + b"{}")
        assert await looking[number] == b"{}"
    assert not channel._answers
    assert not channel._asked_s
    receiving.cancel()
