"""A real API server asks the webhook by the sample configuration, and takes what it answers."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml

from scheduler.model import names
from tests.testbed.api import ApiError, Json, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.webhook.pods import environment, pod
from tests.webhook.serving import DEPLOY, served, service

pytestmark = pytest.mark.e2e
LABELS = {names.LABEL_WORKFLOW: "image-classification", names.LABEL_STAGE: "segmentation"}
CONTAINER = {"name": "main", "image": "i"}


@asynccontextmanager
async def asked(cluster: ControlPlane, **settings: str) -> AsyncIterator[None]:
    """The webhook, asked by the API server of the cluster."""
    issued = cluster.server_certificate("webhook")
    async with served(service(issued.certificate, issued.key, **settings)) as webhook:
        [configuration] = yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text())
        for each in configuration["webhooks"]:
            each["clientConfig"] = {
                "url": f"https://127.0.0.1:{webhook.port}/mutate",
                "caBundle": b64encode(cluster.ca.read_bytes()).decode(),
            }
        await asyncio.to_thread(cluster.api.apply, configuration)
        await asyncio.to_thread(wait_until, lambda: _is_asked(cluster), what="webhook is asked")
        yield


def _is_asked(cluster: ControlPlane) -> bool:
    """Whether the API server knows the webhook by now; a dry run leaves nothing."""
    probe = pod(CONTAINER, labels=LABELS, name="probe")
    made = cluster.api.request(
        "POST", "/api/v1/namespaces/default/pods", probe, query={"dryRun": "All"}
    )
    return "esg-scheduler-mps" in {v["name"] for v in made["spec"]["volumes"]}


async def test_the_api_server_takes_the_patch(cluster: ControlPlane) -> None:
    """The pod that is stored has it all, with the values that Kubernetes' validation lets pass."""
    async with asked(cluster, scheduler_name="esg-scheduler"):
        raw = pod({**CONTAINER, "env": [{"name": "A", "value": "$(ESG_BATCH)"}]}, labels=LABELS)
        made = await asyncio.to_thread(cluster.api.create, raw)
        main = made["spec"]["containers"][0]
        assert main["resources"]["requests"] == main["resources"]["limits"]
        assert names.RESOURCE_GPU_PERCENT in main["resources"]["limits"]
        assert environment(main)["ESG_GPU"] == "metadata.annotations['esg-scheduler.io/gpu']"
        assert environment(main)["A"] == "$(ESG_BATCH)"
        assert [m["mountPath"] for m in main["volumeMounts"]][:2] == [
            "/run/esg-scheduler/mps/pipe",
            "/dev/shm",
        ]
        assert made["spec"]["schedulerName"] == "esg-scheduler"
        # What is stored has Kubernetes' defaults in it; to admit that again changes nothing.
        again = {**made, "metadata": {"name": "again", "labels": LABELS}}
        twice = await asyncio.to_thread(cluster.api.create, again)
        assert twice["spec"] == made["spec"]


async def test_pods_of_a_deployment_are_admitted(cluster: ControlPlane) -> None:
    """A controller's pods name neither themselves nor their namespace; they are made whole."""
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
    async with asked(cluster):
        await asyncio.to_thread(cluster.api.create, deployment)
        await asyncio.to_thread(
            wait_until, lambda: len(cluster.api.items(pods)) == 2, what="two pods"
        )
        for each in await asyncio.to_thread(cluster.api.items, pods):
            assert "ESG_GPU" in environment(each["spec"]["containers"][0])
        path = cluster.api.path({**deployment})
        await asyncio.to_thread(cluster.api.delete, path)
        await asyncio.to_thread(wait_until, lambda: not cluster.api.items(pods), what="none left")


async def test_a_denial_reaches_the_creator(cluster: ControlPlane) -> None:
    """With its code, and the sentence that says what to mend."""
    async with asked(cluster):
        unknown = pod(CONTAINER, labels={**LABELS, names.LABEL_WORKFLOW: "nope"})
        with pytest.raises(ApiError, match="workflow default/nope is not known") as told:
            await asyncio.to_thread(cluster.api.create, unknown)
        assert told.value.status == 403


async def test_function_pods_wait_for_the_webhook_and_no_others(cluster: ControlPlane) -> None:
    """When the webhook is gone, a function pod is refused, and a plain one is made."""
    async with asked(cluster):
        pass
    with pytest.raises(ApiError, match="failed calling webhook"):
        await asyncio.to_thread(cluster.api.create, pod(CONTAINER, labels=LABELS))
    made = await asyncio.to_thread(cluster.api.create, pod(CONTAINER, labels={"app": "x"}))
    assert "env" not in made["spec"]["containers"][0]
