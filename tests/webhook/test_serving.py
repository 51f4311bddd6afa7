"""The webhook over TLS, beside the extender, in one process that ends as one."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from scheduler.model import names
from scheduler.model.pod import FunctionPod, function_pod
from scheduler.server.sockets import ListenError
from scheduler.webhook.server import Webhook
from tests.signals import hear_ctrl_c
from tests.webhook.pods import Json, applied, operations, pod, review
from tests.webhook.serving import DEPLOY, issue, served, service

LABELS = {names.LABEL_WORKFLOW: "image-classification", names.LABEL_STAGE: "segmentation"}


async def admitted(client: httpx.AsyncClient, url: str, raw: Json) -> Json:
    """The pod as the API server keeps it."""
    answer = await client.post(url, json=review(raw, namespace="default"))
    response = answer.json()["response"]
    assert response["allowed"], response
    return applied(raw, operations(response.get("patch")))


async def test_what_is_admitted_can_be_placed(tmp_path: Path) -> None:
    """The extender finds nodes for the admitted pod, with the plan that it would have alone."""
    cert, key, trusts = issue(tmp_path)
    made = service(cert, key)
    async with served(made) as webhook, httpx.AsyncClient(verify=trusts) as client:
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        raw = pod(labels=LABELS)
        after = await admitted(client, url, raw)
        assert await admitted(client, url, after) == after
        nodes = made.state.ledger.node_names()
        alone = made.decider.filter(raw, nodes)
        bounded = made.decider.filter(after, nodes)
        assert bounded.passing == alone.passing == nodes
        sizes = after["spec"]["containers"][0]["resources"]["requests"]
        explained = made.decider.plan(_known(after)).candidates[0].configuration
        assert explained.cpu <= int(sizes["cpu"])
        assert explained.gpu_percent <= int(sizes[names.RESOURCE_GPU_PERCENT])
        unlimited = made.decider.plan(_known(raw)).candidates[0].configuration
        assert explained == unlimited


async def test_no_ceiling_is_above_every_node(tmp_path: Path) -> None:
    """A pod beside a container that takes most of a node's vCPUs gets a ceiling that still fits."""
    cert, key, trusts = issue(tmp_path)
    made = service(cert, key)
    async with served(made) as webhook, httpx.AsyncClient(verify=trusts) as client:
        largest = max(n.cpu_milli for n in made.state.ledger.fleet.nodes if n is not None)
        beside = {"name": "side", "resources": {"requests": {"cpu": f"{largest - 1500}m"}}}
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        after = await admitted(client, url, pod({"name": "main"}, beside, labels=LABELS))
        assert after["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"


async def test_pods_larger_than_every_node_are_left_to_larger_nodes(tmp_path: Path) -> None:
    """Where no node there is can hold any configuration, the plan is made as if there were none."""
    cert, key, trusts = issue(tmp_path)
    async with (
        served(service(cert, key)) as webhook,
        httpx.AsyncClient(verify=trusts) as client,
    ):
        beside = {"name": "side", "resources": {"requests": {"cpu": "1000"}}}
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        after = await admitted(client, url, pod({"name": "main"}, beside, labels=LABELS))
        assert names.RESOURCE_GPU_PERCENT in after["spec"]["containers"][0]["resources"]["limits"]


async def test_an_unknown_workflow_is_denied_by_name(tmp_path: Path) -> None:
    """The creator reads which workflow is missing, in which namespace, and which ones there are."""
    cert, key, trusts = issue(tmp_path)
    async with (
        served(service(cert, key)) as webhook,
        httpx.AsyncClient(verify=trusts) as client,
    ):
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        answer = await client.post(url, json=review(pod(labels=LABELS), namespace="elsewhere"))
        status = answer.json()["response"]["status"]
        assert status["code"] == 403
        assert "workflow elsewhere/image-classification is not known" in status["message"]


async def test_plain_http_is_not_answered(tmp_path: Path) -> None:
    """There is TLS or nothing on that port."""
    cert, key, _ = issue(tmp_path)
    async with served(service(cert, key)) as webhook, httpx.AsyncClient() as client:
        with pytest.raises(httpx.TransportError):
            await client.post(f"http://127.0.0.1:{webhook.port}/mutate", json={})


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    """The message names the address and the settings."""
    cert, key, _ = issue(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = service(cert, key, webhook_port=port)
        with pytest.raises(ListenError, match=rf"port {port} \(ESG_WEBHOOK_HOST, ESG_WEBHOOK_PORT"):
            Webhook(made)


def _serve(environment: dict[str, str], port: int) -> subprocess.Popen[str]:
    nodes, samples = DEPLOY / "nodes" / "mocked-16x1.yaml", DEPLOY / "samples"
    command = f"serve --embedded {nodes} --profiles {samples} --port {port}".split()
    return subprocess.Popen(
        [sys.executable, "-c", "from scheduler.cli import app; app()", *command],
        env=os.environ | {"ESG_WEBHOOK_HOST": "127.0.0.1"} | environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - no thread of this process forks meanwhile
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_a_missing_certificate_ends_the_process_with_a_sentence() -> None:
    """``esg serve`` with a webhook port and no certificate does not start half a service."""
    process = _serve({"ESG_WEBHOOK_PORT": "0"}, 0)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told.startswith("error: the webhook serves TLS alone, and ESG_TLS_CERT is not set")


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_both_servers(tmp_path: Path, sign: signal.Signals) -> None:
    """Both answer, and after one signal neither does and the process is gone, without an error."""
    cert, key, trusts = issue(tmp_path)
    port, hook_port = _free_port(), _free_port()
    settings = {"ESG_TLS_CERT": str(cert), "ESG_TLS_KEY": str(key)}
    process = _serve({**settings, "ESG_WEBHOOK_PORT": str(hook_port)}, port)
    try:
        with httpx.Client(verify=trusts) as client:
            _until_ready(client, f"http://127.0.0.1:{port}/readyz")
            answer = client.post(
                f"https://127.0.0.1:{hook_port}/mutate", json=review(pod(labels={}))
            )
            assert answer.status_code == 200
            # The client keeps its connections open: they must not keep the process.
            process.send_signal(sign)
            _, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in {-sign, 128 + sign}
    assert "Traceback" not in told
    assert "critical" not in told
    for closed in (port, hook_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", closed))


def _until_ready(client: httpx.Client, url: str) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            if client.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(url)


def _known(raw: Json) -> FunctionPod:
    return function_pod({**raw, "metadata": {**raw["metadata"], "namespace": "default"}})
