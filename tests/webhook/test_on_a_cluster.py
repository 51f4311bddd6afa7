"""A real API server calls the webhook by the sample configuration, and accepts its patches."""

import asyncio
from base64 import b64encode
from contextlib import asynccontextmanager

import pytest
import yaml

from scheduler.model import names
from tests.testbed.api import ApiError, Json, wait_until
from tests.webhook.factories import environment, pod
from tests.webhook.harness import DEPLOY, running_webhook, service

pytestmark = pytest.mark.e2e
LABELS = {names.LABEL_WORKFLOW: "image-classification", names.LABEL_STAGE: "segmentation"}
CONTAINER = {"name": "main", "image": "i"}


@asynccontextmanager
async def registered(cluster, **settings):
    """Run the webhook, and register it with the API server of the cluster."""
    issued = cluster.server_certificate("webhook")
    webhook_service = service(issued.certificate, issued.key, **settings)
    async with running_webhook(webhook_service) as webhook:
        [configuration] = yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text())
        for entry in configuration["webhooks"]:
            entry["clientConfig"] = {
                "url": f"https://127.0.0.1:{webhook.port}/mutate",
                "caBundle": b64encode(cluster.ca.read_bytes()).decode(),
            }
        await asyncio.to_thread(cluster.api.apply, configuration)
        await asyncio.to_thread(wait_until, lambda: _is_called(cluster), what="webhook is called")
        yield


def _is_called(cluster):
    """Tell by a dry run if the API server calls the webhook, and not that of an earlier test."""
    probe = pod(CONTAINER, labels=LABELS, name="probe")
    try:
        mutated = cluster.api.request(
            "POST", "/api/v1/namespaces/default/pods", probe, query={"dryRun": "All"}
        )
    except ApiError as error:
        if "failed calling webhook" not in str(error):
            raise
        return False
    return "esg-scheduler-mps" in {v["name"] for v in mutated["spec"]["volumes"]}


async def test_api_server_accepts_the_patch(cluster):
    """The stored pod has every field of the mutation, and passes Kubernetes' validation."""
    async with registered(cluster, scheduler_name="esg-scheduler"):
        raw = pod({**CONTAINER, "env": [{"name": "A", "value": "$(ESG_BATCH)"}]}, labels=LABELS)
        stored = await asyncio.to_thread(cluster.api.create, raw)
        main = stored["spec"]["containers"][0]
        assert main["resources"]["requests"] == main["resources"]["limits"]
        assert names.RESOURCE_GPU_PERCENT in main["resources"]["limits"]
        assert environment(main)["ESG_GPU"] == "metadata.annotations['esg-scheduler.io/gpu']"
        assert environment(main)["A"] == "$(ESG_BATCH)"
        assert [m["mountPath"] for m in main["volumeMounts"]][:2] == [
            "/run/esg-scheduler/mps/pipe",
            "/dev/shm",
        ]
        assert stored["spec"]["schedulerName"] == "esg-scheduler"
        # The stored pod has Kubernetes' defaults; its second admission changes nothing.
        again = {**stored, "metadata": {"name": "again", "labels": LABELS}}
        twice = await asyncio.to_thread(cluster.api.create, again)
        assert twice["spec"] == stored["spec"]


async def test_pods_of_a_deployment_are_mutated(cluster):
    """A controller's pods have neither name nor namespace; they are mutated all the same."""
    deployment: Json = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "served"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}},
        },
    }
    pods = "/api/v1/namespaces/default/pods"
    async with registered(cluster):
        await asyncio.to_thread(cluster.api.create, deployment)
        await asyncio.to_thread(
            wait_until, lambda: len(cluster.api.items(pods)) == 2, what="two pods"
        )
        for item in await asyncio.to_thread(cluster.api.items, pods):
            assert "ESG_GPU" in environment(item["spec"]["containers"][0])
        path = cluster.api.path({**deployment})
        await asyncio.to_thread(cluster.api.delete, path)
        await asyncio.to_thread(wait_until, lambda: not cluster.api.items(pods), what="none left")


async def test_pod_security_objects_to_nothing_but_the_host_folder(cluster):
    """A function pod that is `restricted` itself has one violation, as docs/install.md says."""
    namespace, level = "/api/v1/namespaces/default", "pod-security.kubernetes.io/enforce"
    confined = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }

    def refusal():
        raw = pod({**CONTAINER, "securityContext": confined}, labels=LABELS)
        try:
            cluster.api.request("POST", f"{namespace}/pods", raw, query={"dryRun": "All"})
        except ApiError as error:
            return str(error)
        return ""

    async with registered(cluster, mps_uid=65532, mps_check_image="esg"):
        cluster.api.patch(namespace, {"metadata": {"labels": {level: "restricted"}}})
        try:
            await asyncio.to_thread(wait_until, refusal, what="Pod Security refuses")
            _, violations = (await asyncio.to_thread(refusal)).split('"restricted:latest": ')
        finally:
            cluster.api.patch(namespace, {"metadata": {"labels": {level: None}}})
    assert violations.rstrip('"}').startswith("restricted volume types (")
    assert violations.count(" uses restricted volume type ") == 1
    assert "), " not in violations


async def test_denial_reaches_the_creator(cluster):
    """The creator gets its code and its message."""
    async with registered(cluster):
        unknown = pod(CONTAINER, labels={**LABELS, names.LABEL_WORKFLOW: "nope"})
        with pytest.raises(ApiError, match="workflow default/nope is not known") as refusal:
            await asyncio.to_thread(cluster.api.create, unknown)
        assert refusal.value.status == 403


async def test_only_function_pods_need_the_webhook(cluster):
    """Without a running webhook, a function pod is refused, and a plain pod is created."""
    async with registered(cluster):
        pass
    with pytest.raises(ApiError, match="failed calling webhook"):
        await asyncio.to_thread(cluster.api.create, pod(CONTAINER, labels=LABELS))
    plain = await asyncio.to_thread(cluster.api.create, pod(CONTAINER, labels={"app": "x"}))
    assert "env" not in plain["spec"]["containers"][0]
