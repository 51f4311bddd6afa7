"""Requests through the chart's gateway to MLServer on the real node.

The container of a function pod has a real MLServer with a small network, which echoes the number
of each row; `tritonclient` calls the gateway's Service through the node's port.
"""

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import tritonclient.http as triton
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from tests.node.functions import (
    LABELS,
    PERCENT,
    PODS,
    START_TIMEOUT_S,
    Function,
    deployment,
    grant,
    profile,
    workflow,
)
from tests.node.real_cluster import NAME, RealCluster, is_ready
from tests.node.release import HEALTH_PORT, NAMESPACE, RELEASE, Release
from tests.testbed import images
from tests.testbed.api import Json, wait_until
from tests.testbed.mlserver_process import MODEL, MODEL_SETTINGS, SETTINGS

pytestmark = pytest.mark.e2e

SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}-gateway"
SLO_MS = 1000 * START_TIMEOUT_S  # a request may wait for the start of its pod
POOL = f"esg-scheduler.io/gateway-pool={MODEL}"
SETTINGS_MAP: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": MODEL, "namespace": "default"},
    "data": {
        "settings.json": json.dumps({**SETTINGS, "environments_dir": "/tmp/environments"}),
        "model-settings.json": json.dumps(MODEL_SETTINGS),
    },
}
PROFILE = profile(MODEL, cold_start_ms=20_000, latencies_ms={1: 40, 4: 60})
WORKFLOW = workflow("classify", MODEL, slo_ms=SLO_MS)
CONTAINER: Json = {
    "name": "server",
    "image": images.MLSERVER,
    "imagePullPolicy": "Never",
    "ports": [{"containerPort": 8081}],
    "readinessProbe": {
        "httpGet": {"path": f"/v2/models/{MODEL}/ready", "port": 8080},
        "periodSeconds": 1,
        "timeoutSeconds": 5,
    },
    "volumeMounts": [{"name": "settings", "mountPath": "/models"}],
}
SPEC: Json = {
    "containers": [CONTAINER],
    "volumes": [{"name": "settings", "configMap": {"name": MODEL}}],
}


def server(**spec: object) -> Json:
    """Create the FunctionServer; MLServer takes binary tensors over gRPC only."""
    return {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "FunctionServer",
        "metadata": {"name": MODEL, "namespace": "default"},
        "spec": {"function": MODEL, "protocol": "grpc", "port": 8081, **spec},
    }


def mlserver_deployment() -> Json:
    """Create a Deployment of MLServer with the labels of the workflow."""
    document = deployment(MODEL)
    template = document["spec"]["template"]
    labels = dict(zip(LABELS, ("classify", MODEL), strict=True))
    template["metadata"]["labels"].update(labels)
    template["spec"] = SPEC
    return document


class Gateway:
    """The gateway of the installed chart, as its clients see it."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.api = release.api
        [port] = self.api.get(SERVICE)["spec"]["ports"]
        self._address = f"{release.cluster.node.address}:{port['nodePort']}"

    def pod(self) -> Json:
        """Return its pod."""
        [pod] = self.release.pods("gateway")
        return pod

    def serves(self) -> bool:
        """Tell if the workflow can be called."""
        with triton.InferenceServerClient(self._address) as client:
            try:
                return bool(client.is_model_ready("classify"))
            except (InferenceServerException, OSError):
                return False

    def call(self, numbers: Sequence[int]) -> None:
        """Send a request for each number, and check that each answer is its own."""
        with triton.InferenceServerClient(
            self._address, network_timeout=SLO_MS / 1000, concurrency=len(numbers)
        ) as client:
            running = [client.async_infer("classify", inputs(number)) for number in numbers]
            answers = [request.get_result() for request in running]
        assert [answer.as_numpy("same_number").tolist() for answer in answers] == [
            [[number]] for number in numbers
        ]
        assert {answer.as_numpy("scores").shape for answer in answers} == {(1, 5)}

    def in_time(self) -> int:
        """Return the number of the workflow's requests that were in time, from its metrics."""
        path = f"{self.api.path(self.pod())}:{HEALTH_PORT}/proxy/metrics"
        return sum(
            round(sample.value)
            for family in text_string_to_metric_families(self.api.get(path)["message"])
            for sample in family.samples
            if sample.name == "esg_workflow_requests_total"
            and sample.labels["workflow"] == "classify"
            and sample.labels["result"] == "hit"
        )


def inputs(number: int) -> list[triton.InferInput]:
    """Create the tensors of one row."""
    arrays = {"image": np.ones((1, 3, 8, 8), np.float32), "number": np.array([[number]], np.int64)}
    tensors = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, array.shape, triton.np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


@pytest.fixture(scope="module")
def _mlserver(cluster: RealCluster) -> None:
    """Load the image of MLServer into the node."""
    cluster.kind.load(images.mlserver_image(), [NAME])


@pytest.fixture
def gateway(release: Release, _mlserver: None) -> Iterator[Gateway]:
    """The gateway with a workflow of one model; all pods of the model end afterwards."""
    documents = [SETTINGS_MAP, PROFILE, WORKFLOW]
    for document in documents:
        release.api.apply(document)
    yield Gateway(release)
    for document in [server(), *documents]:
        release.api.delete(release.api.path(document))
    wait_until(lambda: not release.api.items(PODS, labelSelector=POOL), what="its pods are deleted")


def test_a_deployment_answers_under_its_grant(gateway: Gateway) -> None:
    """The pod that the chart's scheduler placed gets batches, also of a gateway that restarted."""
    function = Function(gateway.release.cluster, mlserver_deployment())
    try:
        gateway.api.apply(server(selector={"matchLabels": {"app": MODEL}}))
        pod = function.running()
        assert grant(pod)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(PERCENT)
        wait_until(gateway.serves, what="the gateway has the server", timeout_s=START_TIMEOUT_S)
        gateway.call(range(8))
        assert gateway.in_time() == 8

        killed = gateway.pod()
        gateway.release.cluster.kill(killed, "gateway")
        wait_until(
            lambda: restarts(gateway.pod()) == restarts(killed) + 1 and is_ready(gateway.pod()),
            what="the gateway is ready again",
            timeout_s=START_TIMEOUT_S,
        )
        wait_until(gateway.serves, what="the gateway has the server", timeout_s=START_TIMEOUT_S)
        gateway.call(range(8, 12))
    finally:
        function.delete()


def restarts(pod: Json) -> int:
    """Return how often the only container of a pod has restarted."""
    [status] = pod["status"]["containerStatuses"]
    count: int = status["restartCount"]
    return count


def test_pods_from_demand_start_answer_and_end(gateway: Gateway) -> None:
    """The first request has a pod created, placed, started and warmed; idle, it goes again."""
    gateway.api.apply(server(template={"spec": SPEC}, maxPods=1, keepAliveS=5))
    wait_until(gateway.serves, what="the gateway has the server", timeout_s=START_TIMEOUT_S)
    gateway.call([100])
    [pod] = gateway.api.items(PODS, labelSelector=POOL)
    assert grant(pod)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(PERCENT)
    gateway.call(range(101, 109))
    wait_until(
        lambda: not gateway.api.items(PODS, labelSelector=POOL),
        what="the idle pod is deleted",
        timeout_s=START_TIMEOUT_S,
    )
