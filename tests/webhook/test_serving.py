"""The webhook over TLS, in a process of its own; the extender decides on what it admitted."""

import json
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from scheduler.cli.webhook import webhook_of
from scheduler.model import names
from scheduler.model.pod import function_pod
from scheduler.planning.pods import describe
from scheduler.server.sockets import ListenError
from scheduler.webhook.metrics import WebhookMetrics
from tests.extender.sample_cluster import sample_cluster, unserved_kubeconfig, until_ready
from tests.webhook.factories import operations, patched, pod, review
from tests.webhook.harness import issue, running_webhook, service
from workbench.cluster.process import free_port

LABELS = {names.LABEL_WORKFLOW: "image-classification", names.LABEL_STAGE: "segmentation"}


async def admitted(client, url, raw):
    """Return the pod that the API server stores."""
    answer = await client.post(url, json=review(raw, namespace="default"))
    response = answer.json()["response"]
    assert response["allowed"], response
    return patched(raw, operations(response.get("patch")))


async def test_admitted_pod_can_be_placed(tmp_path):
    """The extender finds nodes for the admitted pod, with the same plan as without the webhook."""
    cert, key, trusts = issue(tmp_path)
    webhook_service = service(cert, key)
    async with (
        running_webhook(webhook_service) as webhook,
        httpx.AsyncClient(verify=trusts) as client,
    ):
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        raw = pod(labels=LABELS)
        after = await admitted(client, url, raw)
        assert await admitted(client, url, after) == after
        nodes = webhook_service.state.ledger.node_names()
        alone = webhook_service.scheduler.schedule(describe(raw), nodes)
        bounded = webhook_service.scheduler.schedule(describe(after), nodes)
        assert list(bounded.feasible) == list(alone.feasible) == list(nodes)
        sizes = after["spec"]["containers"][0]["resources"]["requests"]
        planner = webhook_service.planning.planner
        plan = planner.plan(_function_pod(after))
        configuration = plan.candidates[0].configuration
        assert configuration.cpu <= int(sizes["cpu"])
        assert configuration.gpu_percent <= int(sizes[names.RESOURCE_GPU_PERCENT])
        unlimited = planner.plan(_function_pod(raw)).candidates[0].configuration
        assert configuration == unlimited


async def test_requested_configuration_is_the_ceiling_and_the_grant(tmp_path):
    """The ceilings equal the configuration that the creator requests, and nothing else is planned.

    A ceiling alone does not say it: within its share and vCPUs another one is cheaper.
    """
    cert, key, trusts = issue(tmp_path)
    webhook_service = service(cert, key)
    async with (
        running_webhook(webhook_service) as webhook,
        httpx.AsyncClient(verify=trusts) as client,
    ):
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        requested = {"batch": 1, "cpu": 2, "gpuPercent": 57}
        raw = pod(
            labels=LABELS, annotations={names.ANNOTATION_CONFIGURATION: json.dumps(requested)}
        )
        after = await admitted(client, url, raw)
        sizes = {"cpu": "2", names.RESOURCE_GPU_PERCENT: "57"}
        resources = after["spec"]["containers"][0]["resources"]
        assert resources == {"requests": sizes, "limits": sizes}
        planner = webhook_service.planning.planner
        plan = planner.plan(_function_pod(after))
        configurations = [candidate.configuration for candidate in plan.candidates]
        assert {(c.batch, c.cpu, c.gpu_percent) for c in configurations} == {(1, 2, 57)}
        del after["metadata"]["annotations"]
        within = planner.plan(_function_pod(after)).candidates[0].configuration
        assert (within.batch, within.cpu, within.gpu_percent) != (1, 2, 57)


async def test_no_ceiling_exceeds_every_node(tmp_path):
    """A pod with a sidecar that takes most of a node's vCPUs gets a ceiling that still fits."""
    cert, key, trusts = issue(tmp_path)
    webhook_service = service(cert, key)
    fleet = webhook_service.state.ledger.fleet
    async with (
        running_webhook(webhook_service) as webhook,
        httpx.AsyncClient(verify=trusts) as client,
    ):
        largest_milli = max(n.cpu_milli for n in fleet.nodes if n is not None)
        requests = {"cpu": f"{largest_milli - 1500}m"}
        sidecar = {"name": "side", "resources": {"requests": requests}}
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        after = await admitted(client, url, pod({"name": "main"}, sidecar, labels=LABELS))
        assert after["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"


@pytest.mark.slow
async def test_pod_larger_than_every_node_is_admitted(tmp_path):
    """If no node can hold any configuration, the plan ignores the nodes: larger ones may join."""
    cert, key, trusts = issue(tmp_path)
    async with (
        running_webhook(service(cert, key)) as webhook,
        httpx.AsyncClient(verify=trusts) as client,
    ):
        sidecar = {"name": "side", "resources": {"requests": {"cpu": "1000"}}}
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        after = await admitted(client, url, pod({"name": "main"}, sidecar, labels=LABELS))
        assert names.RESOURCE_GPU_PERCENT in after["spec"]["containers"][0]["resources"]["limits"]


async def test_unknown_workflow_is_denied_by_name(tmp_path):
    """The message names the missing workflow and its namespace."""
    cert, key, trusts = issue(tmp_path)
    async with (
        running_webhook(service(cert, key)) as webhook,
        httpx.AsyncClient(verify=trusts) as client,
    ):
        url = f"https://127.0.0.1:{webhook.port}/mutate"
        answer = await client.post(url, json=review(pod(labels=LABELS), namespace="elsewhere"))
        status = answer.json()["response"]["status"]
        assert status["code"] == 403
        assert "workflow elsewhere/image-classification is not known" in status["message"]


async def test_plain_http_is_not_served(tmp_path):
    """The port serves TLS only."""
    cert, key, _ = issue(tmp_path)
    async with running_webhook(service(cert, key)) as webhook, httpx.AsyncClient() as client:
        with pytest.raises(httpx.TransportError):
            await client.post(f"http://127.0.0.1:{webhook.port}/mutate", json={})


def test_port_in_use_is_an_error(tmp_path):
    """The message names the address and the settings."""
    cert, key, _ = issue(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        webhook_service = service(cert, key, webhook_port=port)
        with pytest.raises(ListenError, match=rf"port {port} \(ESG_WEBHOOK_HOST, ESG_WEBHOOK_PORT"):
            webhook_of(webhook_service.planning, WebhookMetrics())


def _start(command, kubeconfig, environment, *arguments):
    return subprocess.Popen(
        [
            *(sys.executable, "-c", "from scheduler.cli.commands import app; app()"),
            *(command, f"--kubeconfig={kubeconfig}", *arguments),
        ],
        env=os.environ
        | {"ESG_WEBHOOK_HOST": "127.0.0.1", "ESG_HEALTH_HOST": "127.0.0.1"}
        | {"no_proxy": "127.0.0.1", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_missing_certificate_ends_the_command_with_a_message(tmp_path):
    """``esg webhook`` without a certificate exits instead of serving partly."""
    process = _start("webhook", unserved_kubeconfig(tmp_path), {"ESG_WEBHOOK_PORT": "0"})
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 1
    assert stderr.startswith("error: the webhook serves TLS only, and ESG_TLS_CERT is not set")


@pytest.mark.slow
def test_extender_does_not_serve_the_webhook(tmp_path):
    """``esg serve`` leaves the webhook's port alone: a request there never delays a decision."""
    cert, key, _ = issue(tmp_path)
    port, hook_port = free_port(), free_port()
    settings = {"ESG_TLS_CERT": str(cert), "ESG_TLS_KEY": str(key)}
    settings["ESG_WEBHOOK_PORT"] = str(hook_port)
    with sample_cluster(tmp_path) as kubeconfig:
        process = _start("serve", kubeconfig, settings, "--port", str(port))
        try:
            with httpx.Client() as client:
                until_ready(client, f"http://127.0.0.1:{port}/readyz")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", hook_port))
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_a_signal_ends_webhook_and_health_server(tmp_path, sign):
    """Both answer; after one signal neither does, and the process has ended with status 0."""
    cert, key, trusts = issue(tmp_path)
    port, hook_port = free_port(), free_port()
    settings = {"ESG_TLS_CERT": str(cert), "ESG_TLS_KEY": str(key), "ESG_HEALTH_PORT": str(port)}
    with sample_cluster(tmp_path) as kubeconfig:
        process = _start("webhook", kubeconfig, {**settings, "ESG_WEBHOOK_PORT": str(hook_port)})
        try:
            with httpx.Client(verify=trusts) as client:
                until_ready(client, f"http://127.0.0.1:{port}/readyz")
                answer = client.post(
                    f"https://127.0.0.1:{hook_port}/mutate", json=review(pod(labels={}))
                )
                assert answer.status_code == 200
                metrics = client.get(f"http://127.0.0.1:{port}/metrics").text
                assert "esg_webhook_request_duration_seconds_count 1.0" in metrics
                assert "esg_gpu_granted_ratio" not in metrics
                # The client keeps its connections open: they must not delay the exit.
                process.send_signal(sign)
                _, stderr = process.communicate(timeout=300)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert "Traceback" not in stderr
    assert "critical" not in stderr
    for closed in (port, hook_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", closed))


def _function_pod(raw):
    return function_pod({**raw, "metadata": {**raw["metadata"], "namespace": "default"}})
