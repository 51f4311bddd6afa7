"""The gateway's process with gRPC on both sides."""

import numpy as np
import tritonclient.grpc.aio as triton

from scheduler.cluster.resource import FUNCTION_PROFILES, FUNCTION_SERVERS, WORKFLOWS
from scheduler.model.documents import to_manifest
from tests.gateway.factories import profile, server, workflow
from tests.gateway.grpc_player import GrpcPlayer
from tests.gateway.test_process import running
from workbench.cluster.process import free_port


async def test_a_request_over_grpc_and_one_over_http(tmp_path, loopback_http):
    """The documents name a model server that speaks gRPC; clients speak either."""
    grpc_port = free_port()
    player = GrpcPlayer()
    async with player.serve() as port, running(tmp_path, grpc_port=grpc_port) as gateway:
        documents = gateway.api_server
        documents.put(FUNCTION_PROFILES, to_manifest(profile("f")))
        documents.put(FUNCTION_SERVERS, server("f", "f", protocol="grpc", port=port))
        documents.put(WORKFLOWS, workflow(stages=("f",)))
        gateway.put_pod("f", port=port)
        await gateway.until_health("/v1/queues", lambda _, text: '"state":"ready"' in text)
        array = np.array([[1.0], [2.0]], np.float32)
        tensor = triton.InferInput("x", array.shape, "FP32").set_data_from_numpy(array)
        async with triton.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
            assert await client.is_model_ready("n/w")
            answer = await client.infer("n/w", [tensor])
        assert answer.as_numpy("y").tolist() == [[2.0], [4.0]]
        status, answer = await gateway.infer()
        assert (status, answer["outputs"][0]["data"]) == (200, [2.0, 4.0])
        samples = await gateway.samples()
        counted = [v for key, v in samples.items() if key[0] == "esg_workflow_requests_total"]
        assert sum(counted) == 2
