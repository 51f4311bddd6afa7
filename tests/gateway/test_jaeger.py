"""A late request's spans in a real Jaeger, which ``make test-neighbours`` builds."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.gateway.test_process import BODY, running
from tests.testbed import binaries
from workbench.cluster.model_server import PlayedModelServer
from workbench.cluster.process import free_port

PROGRAM = "all-in-one"
LISTENERS = {
    **{name: f"--collector.otlp.{name}.host-port" for name in ("http", "grpc")},
    "query": "--query.http-server.host-port",
    "query-grpc": "--query.grpc-server.host-port",
    "collector": "--collector.http-server.host-port",
    "collector-grpc": "--collector.grpc-server.host-port",
    "admin": "--admin.http.host-port",
}
TRACE_ID, CLIENT_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not binaries.is_built(PROGRAM), reason="Jaeger is not built: run make test-neighbours"
    ),
]


@pytest.fixture(autouse=True)
def _loopback_http(loopback_http):
    pass


@asynccontextmanager
async def jaeger(log):
    """Run Jaeger with spans in memory; yield its receiver's URL, and what reads its API."""
    addresses = {name: f"127.0.0.1:{free_port()}" for name in LISTENERS}
    options = [f"{option}={addresses[name]}" for name, option in LISTENERS.items()]
    with log.open("wb") as file:
        program = binaries.build([PROGRAM])[PROGRAM]
        process = await asyncio.create_subprocess_exec(program, *options, stdout=file, stderr=file)
        try:
            api = f"http://{addresses['query']}/api"
            await read_until(process, f"{api}/services", lambda answer: "data" in answer)
            yield (
                f"http://{addresses['http']}/v1/traces",
                lambda path, expected: read_until(process, f"{api}/{path}", expected),
            )
        finally:
            process.terminate()
            await process.wait()


async def read_until(process, url, expected):
    """Read JSON until it meets an expectation, while the process runs; return it."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as client:
        while True:
            assert process.returncode is None, "Jaeger has ended"
            try:
                async with client.get(url) as answer:
                    document = json.loads(await answer.read())
            except (aiohttp.ClientConnectionError, ValueError):
                document = {}
            if expected(document):
                return document
            await asyncio.sleep(0.1)


async def test_a_late_request_is_a_trace_in_jaeger(tmp_path):
    """Its call is a child of the client's span; below it are the stage, its waits and its run."""
    played = PlayedModelServer(run_ms=50)
    async with (
        jaeger(tmp_path / "jaeger.log") as (receiver, read),
        played.serving(),
        running(tmp_path, otlp_url=receiver) as gateway,
    ):
        gateway.put_documents("f", "g", port=played.port, slo_ms=1)
        gateway.put_pod("f")
        gateway.put_pod("g")
        await gateway.until_health("/v1/queues", lambda _, text: text.count('"state":"ready"') == 2)
        headers = {"traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN}-01"}
        assert (await gateway.post("/n/v2/models/w/infer", BODY, **headers))[0] == 200
        report = json.loads((await gateway.health(f"/v1/requests/{TRACE_ID}"))[1])

        answer = await read(f"traces/{TRACE_ID}", lambda body: body.get("data"))
        [trace] = answer["data"]
        spans = {span["spanID"]: span for span in trace["spans"]}
        names = sorted(span["operationName"] for span in spans.values())
        assert [name for name in names if name in {"infer w", "f", "g", "run"}] == [
            *("f", "g", "infer w", "run", "run")
        ]
        parents = {
            span["operationName"]: span["references"][0]["spanID"] for span in spans.values()
        }
        assert parents["infer w"] == CLIENT_SPAN
        assert spans[parents["f"]]["operationName"] == "infer w"
        [call] = [span for span in spans.values() if span["operationName"] == "infer w"]
        tags = {tag["key"]: tag["value"] for tag in call["tags"]}
        assert tags["esg.request.id"] == report["id"]
        assert tags["esg.cause"] == report["cause"]
        assert tags["esg.result"] == "miss"
        assert call["duration"] == pytest.approx(1000 * report["latency_ms"], abs=1)
        [process] = trace["processes"].values()
        assert process["serviceName"] == "esg-gateway"
