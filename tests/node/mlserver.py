"""A real MLServer in function pods of the real node, and calls of it through the chart's gateway.

Its small network echoes the number of each row; `tritonclient` calls the gateway's Service through
the node's port.
"""

import json
from collections.abc import Sequence

import numpy as np
import tritonclient.http as triton
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from tests.node.functions import START_TIMEOUT_S, profile, workflow
from tests.node.release import HEALTH_PORT, NAMESPACE, RELEASE, Release
from tests.testbed import images
from tests.testbed.api import Json
from tests.testbed.mlserver_process import MODEL, MODEL_SETTINGS, SETTINGS

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
