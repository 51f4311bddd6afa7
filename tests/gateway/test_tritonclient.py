"""The contract's own client against the HTTP front."""

import asyncio

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tests.gateway.harness import gateway
from tests.gateway.messages import rows_of


def _input(array, *, binary):
    tensor = triton.InferInput("x", array.shape, "FP32")
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


@pytest.mark.slow
@pytest.mark.parametrize("binary", [True, False])
async def test_concurrent_clients_get_the_rows_of_their_own_requests(binary):
    """Many clients with 1 to 5 rows, each answer in the form that the client asked for."""

    async def client(address, first):
        async with triton_aio.InferenceServerClient(address) as connection:
            for number in range(first, first + 10):
                array = rows_of(number, 1 + number % 5, 4 if number % 4 else 10_000)
                outputs = [triton.InferRequestedOutput("y", binary_data=number % 2 == 0)]
                answer = await connection.infer(
                    "double",
                    [_input(array, binary=binary)],
                    request_id=f"request-{number}",
                    outputs=outputs if number % 3 else None,
                )
                assert answer.get_response()["id"] == f"request-{number}"
                assert np.array_equal(answer.as_numpy("y"), 2 * array)

    async with gateway(slots=2) as service:
        address = f"127.0.0.1:{service.port}"
        await asyncio.gather(*(client(address, 100 * number) for number in range(20)))
        assert len(service.played.runs) < 200


async def test_the_client_with_threads_reads_health_metadata_and_answers():
    """The client that most users have, with its own connection pool."""

    def use(address):
        with triton.InferenceServerClient(address, concurrency=4) as connection:
            assert connection.is_server_live()
            assert connection.is_server_ready()
            assert connection.is_model_ready("double")
            assert not connection.is_model_ready("unknown")
            assert connection.get_server_metadata()["name"] == "esg-scheduler"
            assert connection.get_model_metadata("double")["inputs"]
            arrays = [rows_of(number, 1 + number % 3) for number in range(12)]
            pending = [
                connection.async_infer("double", [_input(array, binary=True)]) for array in arrays
            ]
            for array, answer in zip(arrays, pending, strict=True):
                assert np.array_equal(answer.get_result().as_numpy("y"), 2 * array)
            with pytest.raises(InferenceServerException, match="there is no workflow 'unknown'"):
                connection.infer("unknown", [_input(arrays[0], binary=True)])
            [version] = connection.get_model_metadata("double")["versions"]
            assert connection.is_model_ready("double", version)
            assert connection.get_model_metadata("double", version)["inputs"]
            tensor = _input(arrays[0], binary=True)
            answer = connection.infer("double", [tensor], model_version=version)
            assert np.array_equal(answer.as_numpy("y"), 2 * arrays[0])
            with pytest.raises(InferenceServerException, match="has version 1 alone"):
                connection.infer("double", [tensor], model_version="2")

    async with gateway() as service:
        await asyncio.to_thread(use, f"127.0.0.1:{service.port}")


async def test_compressed_bodies_are_refused_and_compressed_answers_are_not_sent():
    """A compressed body would have to be decoded; the message says to send it as it is."""
    array = rows_of(1, 2)
    async with (
        gateway() as service,
        triton_aio.InferenceServerClient(f"127.0.0.1:{service.port}") as connection,
    ):
        inputs = [_input(array, binary=True)]
        with pytest.raises(InferenceServerException, match="without compression"):
            await connection.infer("double", inputs, request_compression_algorithm="gzip")
        answer = await connection.infer("double", inputs, response_compression_algorithm="gzip")
        assert np.array_equal(answer.as_numpy("y"), 2 * array)
