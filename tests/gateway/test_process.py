"""The gateway's process over an API server and played model servers: documents in, answers out."""

import asyncio
import contextlib
import json
import os
import re
import signal

import aiohttp
import pytest
import yaml
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from scheduler.cluster.api import connect
from scheduler.cluster.resource import (
    FUNCTION_PROFILES,
    FUNCTION_SERVERS,
    NODES,
    PODS,
    WORKFLOWS,
)
from scheduler.cluster.watches import Watches
from scheduler.dispatch.run_times import RUNS_MIN
from scheduler.gateway.process import run_gateway
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.documents import FunctionProfile, to_manifest
from scheduler.model.yaml_parser import parse_yaml
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer
from tests.cluster.factories import kubeconfig_for
from tests.command_line import esg
from tests.gateway.factories import pod, profile, server, workflow
from tests.gateway.harness import eventually
from tests.testbed import REPOSITORY
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.model_server import PlayedModelServer
from workbench.cluster.process import free_port
from workbench.profiles.profile_documents import as_yaml
from workbench.simulation.scenario import Scenario

BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 1], "data": [1.0, 2.0]}]}


class Running:
    """A gateway, and a client of its two ports."""

    def __init__(self, api_server, client, port, health_port):
        self.api_server = api_server
        self.process: asyncio.Task[None]
        self._client = client
        self._model_port = 0
        self.address = f"127.0.0.1:{port}"
        self._url = f"http://{self.address}"
        self.health_url = f"http://127.0.0.1:{health_port}"

    async def infer(self, name="w"):
        """Send one request of two rows; return status and JSON."""
        return await self.post(f"/n/v2/models/{name}/infer", BODY)

    async def post(self, path, body, **headers):
        """Send JSON; return status and JSON."""
        async with self._client.post(self._url + path, json=body, headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def health(self, path, **headers):
        """Read a path of the health port; None while it does not listen."""
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with self._client.get(self.health_url + path, headers=headers) as answer:
                return answer.status, await answer.text()
        return None

    async def until_health(self, path, expected):
        """Wait until a path of the health port meets an expectation."""
        async with asyncio.timeout(60):
            while (answer := await self.health(path)) is None or not expected(*answer):
                assert not self.process.done(), self.process.result()
                await asyncio.sleep(0.02)

    async def samples(self):
        """Read all samples: name and values of the labels, sorted by the labels' names."""
        _, text = await self.health("/metrics")
        return {
            (sample.name, *(text for _, text in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def put_documents(self, *functions, port, slo_ms=10_000):
        """Create profiles, servers and a workflow of these functions."""
        self._model_port = port
        for function in functions:
            self.api_server.put(FUNCTION_PROFILES, to_manifest(profile(function)))
            self.api_server.put(FUNCTION_SERVERS, server(function, function, port=port))
        self.api_server.put(WORKFLOWS, workflow(stages=functions, slo_ms=slo_ms))

    def put_pod(self, function, *, port=None, **changed):
        """Create a pod of a function on the loopback, by default with the documents' port."""
        ports = [{"containerPort": port or self._model_port}]
        raw = pod(f"{function}-0", app=function, host="127.0.0.1", ports=ports, **changed)
        self.api_server.put(PODS, raw)


@contextlib.asynccontextmanager
async def running(tmp_path, *, page=False, **options):
    """Run a gateway's process until a signal ends it."""
    api_server = ApiServer()
    await api_server.start()
    kubeconfig = kubeconfig_for(api_server.url, tmp_path)

    async def serve(settings, gateway):
        async with connect(kubeconfig) as api:
            await run_gateway(settings, gateway, Watches(api))

    port, health_port = free_port(), free_port()
    settings = Settings(health_port=health_port, health_host="127.0.0.1", page=page)
    gateway = GatewaySettings(host="127.0.0.1", port=port, **options)
    try:
        async with aiohttp.ClientSession() as client:
            gateway_running = Running(api_server, client, port, health_port)
            gateway_running.process = asyncio.create_task(serve(settings, gateway))
            await gateway_running.until_health("/readyz", lambda status, _: status == 200)
            yield gateway_running
            if not gateway_running.process.done():
                os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(60):
                await gateway_running.process
    finally:
        gateway_running.process.cancel()
        await asyncio.wait([gateway_running.process], timeout=10)
        await api_server.stop()


@pytest.fixture(autouse=True)
def _loopback_http(loopback_http):
    pass


async def test_a_request_through_two_stages(tmp_path):
    """Documents and pods of the API server serve a request; its SLO and batches are counted."""
    played = PlayedModelServer(run_ms=5)
    async with played.serving(), running(tmp_path) as gateway:
        gateway.put_documents("f", "g", port=played.port)
        gateway.put_pod("f")
        gateway.put_pod("g", annotations={})
        await gateway.until_health("/v1/queues", lambda _, text: text.count('"state":"ready"') == 2)

        status, answer = await gateway.infer()

        outputs = {output["name"]: output["data"] for output in answer["outputs"]}
        assert (status, outputs["y"]) == (200, [4.0, 8.0])
        samples = await gateway.samples()
        assert samples["esg_workflow_requests_total", "n", "hit", "w"] == 1
        assert samples["esg_workflow_duration_seconds_count", "n", "w"] == 1
        assert samples["esg_batch_size_sum", "n", "f", "w"] == 2
        assert samples["esg_stage_duration_seconds_count", "n", "execute", "g", "w"] == 1
        assert samples["esg_gateway_pods", "f", "n", "ready"] == 1
        assert samples["esg_gateway_queue_rows", "n", "f", "w"] == 0
        assert samples["esg_function_pods_wanted", "f", "n"] == 1
        assert samples["esg_cost_dollars_total", "n", "w"] > 0
        assert samples["esg_function_pods_dollars_per_hour", "f", "n"] > 1
        assert samples["esg_workflow_cost_limit_dollars", "n", "w"] > 0
        assert ("esg_gateway_cold_starts_total", "n", "w") not in samples
        assert samples["esg_gateway_requests_refused_total", "429"] == 0
        assert samples["esg_unusable_documents",] == 0


async def test_the_page_shows_workflows_and_late_requests(tmp_path):
    """It is off by default; then it has figures of functions, and each late request by its id."""
    played = PlayedModelServer(run_ms=5)
    async with played.serving(), running(tmp_path, page=True, trace_every=1) as gateway:
        gateway.put_documents("f", port=played.port)
        gateway.put_pod("f")
        await gateway.until_health("/v1/queues", lambda _, text: '"state":"ready"' in text)
        await gateway.post("/n/v2/models/w/infer", BODY | {"id": "mine"})

        status, text = await gateway.health("/")
        assert (status, "<title>esg-scheduler</title>" in text) == (200, True)
        overview = json.loads((await gateway.health("/v1/overview"))[1])
        [function], [workflow] = overview["functions"], overview["workflows"]
        assert (function["name"], function["ready"], workflow["in_slo_1h"]) == ("f", 1, 1.0)
        assert function["dollars_per_hour"] > 1
        assert (overview["group"], overview["pools"]) == ("", {})
        request = json.loads((await gateway.health("/v1/requests/mine"))[1])
        assert (request["workflow"], request["result"]) == ("w", "hit")
        assert request["stages"][0]["pod"] == "n/f-0"
        assert (await gateway.health("/v1/requests"))[1] == "[]"
        call, batch = json.loads((await gateway.health("/v1/calls"))[1])
        assert (call["event"], call["workflow"], call["result"]) == ("call ended", "w", "hit")
        assert (batch["event"], batch["stage"]) == ("batch ended", request["stages"][0]["stage"])


@pytest.mark.slow
async def test_late_requests_are_exemplars_of_the_durations(tmp_path):
    """Scrapers that accept OpenMetrics get the last late request of each bucket."""
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    played = PlayedModelServer(run_ms=5)
    async with played.serving(), running(tmp_path) as gateway:
        gateway.put_documents("f", port=played.port, slo_ms=1)
        gateway.put_pod("f")
        await gateway.until_health("/v1/queues", lambda _, text: '"state":"ready"' in text)
        traced = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
        assert (await gateway.post("/n/v2/models/w/infer", BODY, **traced))[0] == 200

        _, text = await gateway.health("/metrics", Accept="application/openmetrics-text")
        families = {f.name: f for f in openmetrics_families(text)}
        [late] = json.loads((await gateway.health("/v1/requests"))[1])
        [exemplar] = [
            sample.exemplar
            for sample in families["esg_workflow_duration_seconds"].samples
            if sample.exemplar is not None
        ]
        assert exemplar.labels == {"request_id": late["id"], "trace_id": trace_id}
        assert exemplar.value == pytest.approx(late["latency_ms"] / 1000)
        samples = await gateway.samples()  # in Prometheus' format, without exemplars
        assert {name for name, *_ in samples} == {
            sample.name for family in families.values() for sample in family.samples
        }


@pytest.mark.slow
async def test_profiles_are_refreshed_from_observed_run_times(tmp_path):
    """The command multiplies the times of the applied profile by the ratio that the port has."""
    file, out = tmp_path / "f.yaml", tmp_path / "refreshed.yaml"
    text = as_yaml([FunctionProfile.model_validate(profile("f").model_dump(by_alias=True))])
    file.write_text(text, encoding="utf-8")
    body = {"inputs": [BODY["inputs"][0] | {"shape": [4, 1], "data": [1.0, 2.0, 3.0, 4.0]}]}
    played = PlayedModelServer(run_ms=50)
    async with played.serving(), running(tmp_path) as gateway:
        gateway.put_documents("f", port=played.port)
        gateway.put_pod("f")
        await gateway.until_health("/v1/queues", lambda _, text: '"state":"ready"' in text)
        for _ in range(RUNS_MIN + 1):  # the first batch of a pod does not count
            assert (await gateway.post("/n/v2/models/w/infer", body))[0] == 200

        await gateway.until_health("/v1/run-times/f", lambda _, text: '"runs":10' in text)
        observed = json.loads((await gateway.health("/v1/run-times/f"))[1])["namespaces"]["n"]
        command = ["profiles", "refresh", "--from", gateway.health_url, "-f", file, "-o", out]
        done = await asyncio.to_thread(esg, *command)

        assert done.exit_code == 0, done.output
        [gpu] = yaml.safe_load(out.read_text(encoding="utf-8"))["spec"]["gpus"]
        assert gpu["configurations"][0]["latencyMs"] == round(100 * observed["ratio"], 4)
        assert (await gateway.health("/v1/run-times/unknown"))[0] == 404


@pytest.mark.slow
async def test_the_page_is_off_by_default(tmp_path):
    """The port has probes, metrics, queues and late requests alone."""
    async with running(tmp_path) as gateway:
        for path in ("/", "/page.js", "/v1/overview", "/v1/gpus"):
            assert (await gateway.health(path))[0] == 404


@pytest.mark.slow
async def test_requests_change_no_condition(tmp_path, monkeypatch):
    """Requests to a ready Workflow change the number of wanted pods alone, in one write."""
    monkeypatch.setattr("scheduler.cluster.status_writer.FIELDS_S", 0.0)
    played = PlayedModelServer(run_ms=5)
    async with played.serving(), running(tmp_path) as gateway:
        gateway.put_pod("f", port=played.port)
        gateway.put_documents("f", port=played.port)
        api_server = gateway.api_server
        await api_server.until(lambda: "Served" in str(status_of(api_server, WORKFLOWS, "w")))
        await api_server.until(
            lambda: "PodsReady" in str(status_of(api_server, FUNCTION_SERVERS, "f"))
        )
        before = api_server.seen("PATCH", "/status")

        answers = [await gateway.infer() for _ in range(20)]

        assert {status for status, _ in answers} == {200}
        await api_server.until(
            lambda: status_of(api_server, FUNCTION_SERVERS, "f").get("wantedReplicas") == 1
        )
        [change] = api_server.seen("PATCH", "/status")[len(before) :]
        assert change.body["status"] == {"wantedReplicas": 1}


def status_of(api_server, resource, name):
    """Return the status of a document of namespace n."""
    return api_server.store.get(resource.path, ("n", name)).get("status") or {}


class FourNumbers(PlayedModelServer):
    """The model of the guide's request."""

    def signature(self):
        row = {"datatype": "FP32", "shape": [-1, 4]}
        return {"inputs": [{"name": "x", **row}], "outputs": [{"name": "y", **row}]}


@pytest.mark.slow
async def test_the_guides_deployment(tmp_path):
    """The guide's Deployment, FunctionServer, Workflow and curl request give an answer."""
    guide = "".join(
        (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
        for name in ("guide.md", "gateway.md")
    )
    documents = [
        document
        for block in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
        for document in yaml.safe_load_all(block)
        if "kind" in document
    ]
    deployment, server_document, workflow_document = (
        next(d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, "segmentation"))
        for kind in ("Deployment", "FunctionServer", "Workflow")
    )
    path, body = re.search(r"curl http://[^/]+(/\S+) -d '(\{.*?\})'", guide, re.DOTALL).groups()
    profiles = parse_yaml((REPOSITORY / "deploy/samples/profiles.yaml").read_text())
    played = FourNumbers(run_ms=5)
    async with played.serving(), running(tmp_path) as gateway:
        for document in profiles:
            gateway.api_server.put(FUNCTION_PROFILES, document)
        server_document["spec"]["port"] = played.port
        gateway.api_server.put(FUNCTION_SERVERS, server_document)
        gateway.api_server.put(WORKFLOWS, workflow_document)
        template = deployment["spec"]["template"]
        [container] = template["spec"]["containers"]
        assert container["ports"] == [{"containerPort": 8000}]
        ports = [{"containerPort": played.port}]
        raw = pod("segmentation-1", namespace="default", host="127.0.0.1", ports=ports)
        raw["metadata"]["labels"] = template["metadata"]["labels"]
        gateway.api_server.put(PODS, raw)
        await gateway.until_health("/v1/queues", lambda _, text: '"state":"ready"' in text)

        status, answer = await gateway.post(path, json.loads(body))

        assert (status, answer["outputs"][0]["data"]) == (200, [2.0, 4.0, 6.0, 8.0])


async def test_without_pods(tmp_path):
    """Without a ready pod a request is refused with the reason, and a pod is wanted."""
    async with running(tmp_path) as gateway:
        gateway.put_documents("f", port=1)
        gateway.put_pod("f", ready=False)
        await gateway.until_health("/v1/queues", lambda _, text: '"state":"starting"' in text)

        status, answer = await gateway.infer()

        assert status == 503
        assert "no pod of f is ready" in answer["error"]
        samples = await gateway.samples()
        assert samples["esg_gateway_requests_refused_total", "503"] == 1
        assert samples["esg_function_pods_wanted", "f", "n"] == 1
        assert samples["esg_gateway_pods", "f", "n", "starting"] == 1


@pytest.mark.slow
async def test_a_function_with_a_template_wants_the_pods_of_the_scaler(tmp_path):
    """The gauge and the scaler, which creates the pods, agree, with or without load."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    async with running(tmp_path, pods=True) as gateway:
        gateway.put_documents("f", port=1)
        document = server("f", "f", selector=None, template=template, minPods=2)
        gateway.api_server.put(FUNCTION_SERVERS, document)
        await gateway.until_health("/v1/queues", lambda _, text: '"pods_wanted":2' in text)

        samples = await gateway.samples()

        assert samples["esg_function_pods_wanted", "f", "n"] == 2


@pytest.mark.slow
async def test_a_simulation_gets_nodes_and_settings(tmp_path):
    """Nodes count by kind where the gateway creates pods, with what their pods have."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    async with running(tmp_path, pods=True) as gateway:
        for node in gpu_nodes(3, 2, unhealthy=frozenset({(2, 0)})):
            gateway.api_server.put(NODES, node)
        gateway.put_documents("f", port=1)
        document = server("f", "f", selector=None, template=template, keepAliveS=5)
        gateway.api_server.put(FUNCTION_SERVERS, document)

        def has_all(_, text):
            return '"gpus":1' in text and json.loads(text)["keep_alive_ms"] is not None

        await gateway.until_health("/v1/cluster", has_all)
        cluster = json.loads((await gateway.health("/v1/cluster"))[1])

        kind = {"gpu_model": "NVIDIA A100-SXM4-80GB", "cpus": 16, "memory_mib": 81_920}
        assert cluster.pop("node_kinds") == [
            kind | {"gpus": 2, "count": 2}, kind | {"gpus": 1, "count": 1},
        ]  # fmt: skip
        assert (cluster["pool"], cluster["keep_alive_ms"]) == (False, 5_000)
        assert Scenario(**cluster).rules == Settings().rules


@pytest.mark.slow
async def test_a_deleted_workflow(tmp_path):
    """A deleted workflow is unknown to clients, and its series end."""
    async with running(tmp_path) as gateway:
        gateway.put_documents("f", port=1)
        gateway.put_pod("f")
        await gateway.until_health("/v1/queues", lambda _, text: '"n/w"' in text)
        gateway.api_server.remove(WORKFLOWS, "w", "n")
        await gateway.until_health("/v1/queues", lambda _, text: '"n/w"' not in text)

        status, answer = await gateway.infer()

        assert status == 404
        assert "workflow w is not known in namespace n" in answer["error"]
        assert not [labels for labels in await gateway.samples() if "w" in labels[1:]]


@pytest.mark.slow
async def test_what_is_not_used_is_told(tmp_path):
    """Administration shows why a workflow, a server or a pod is not used."""
    async with running(tmp_path) as gateway:
        gateway.api_server.put(WORKFLOWS, workflow())
        gateway.api_server.put(FUNCTION_SERVERS, server(port=0))
        await gateway.until_health("/v1/queues", lambda _, text: '"FunctionServer n/s"' in text)

        _, text = await gateway.health("/v1/queues")

        unused = json.loads(text)["unused_documents"]
        assert unused["Workflow n/w"] == "no FunctionProfile of f; create them with these names"
        assert "spec.port" in unused["FunctionServer n/s"]
        assert (await gateway.samples())["esg_unusable_documents",] == 2


class HeldModelServer(PlayedModelServer):
    """A model server whose runs end when they are released."""

    def __post_init__(self):
        super().__post_init__()
        self.released = asyncio.Event()

    async def spend_time(self, rows):
        await self.released.wait()


async def test_sigterm_drains(tmp_path):
    """After SIGTERM it is not ready and refuses calls; the one in progress is answered."""
    played = HeldModelServer()
    async with played.serving(), running(tmp_path) as gateway:
        gateway.put_documents("f", port=played.port)
        gateway.put_pod("f")
        await gateway.until_health("/v1/queues", lambda _, text: '"state":"ready"' in text)
        call = asyncio.create_task(gateway.infer())
        await eventually(lambda: played.runs)

        os.kill(os.getpid(), signal.SIGTERM)
        await gateway.until_health("/readyz", lambda status, _: status == 503)

        refused, answer = await gateway.infer()
        assert (refused, answer["error"]) == (
            503,
            "the gateway is shutting down; send the request again",
        )
        assert not call.done()
        played.released.set()
        status, _ = await call
        assert status == 200
