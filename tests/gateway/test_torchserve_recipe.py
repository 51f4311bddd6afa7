"""The handler and the command for TorchServe in docs/gateway.md, as they are written there."""

import os
import re
import subprocess

import numpy as np
import pytest

from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.model_servers import model_server
from scheduler.oip.batch import RowRange
from scheduler.oip.grpc_request import parse_grpc_request
from tests.gateway.runtime_bed import arrays
from tests.oip import grpc_twin
from tests.testbed import REPOSITORY
from tests.testbed.torchserve_process import BIN, RECIPE, TorchServe, needs_torchserve

pytestmark = [pytest.mark.slow, pytest.mark.nightly, needs_torchserve]
GUIDE = (REPOSITORY / "docs" / "gateway.md").read_text(encoding="utf-8")
NETWORK = "import torch; torch.jit.script(torch.nn.Threshold(2.0, -1.0)).save('model.pt')"


class DocumentedTorchServe(TorchServe):
    """TorchServe with the guide's handler; its network replaces numbers up to 2 by -1."""

    model = "segmentation"

    def _archive(self, folder):
        [handler] = re.findall(r"```python\n# handler.py\n(.*?)```", GUIDE, re.DOTALL)
        [command] = re.findall(r"```\n(torch-model-archiver .*?)```", GUIDE, re.DOTALL)
        (folder / "handler.py").write_text(handler, encoding="utf-8")
        (folder / "oip_handler.py").symlink_to(RECIPE / "oip_handler.py")
        (folder / "models").symlink_to(folder)
        subprocess.run([BIN / "python", "-c", NETWORK], cwd=folder, check=True)
        path = f"{BIN}:{os.environ['PATH']}"
        subprocess.run(
            command, shell=True, cwd=folder, check=True, env={**os.environ, "PATH": path}
        )


@pytest.fixture(scope="module")
def torchserve(tmp_path_factory):
    server = DocumentedTorchServe(tmp_path_factory.mktemp("server"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("protocol", ["http-binary", "http-json"])
async def test_the_guides_handler_answers_rows_and_errors(torchserve, protocol):
    client = model_server(protocol, "127.0.0.1", torchserve.http_port)

    async def infer(rows):
        message = grpc_twin.message(grpc_twin.Request, [("x", "FP32", rows)])
        request = parse_grpc_request(message.SerializeToString())
        whole = RowRange(request.in_form(binary=client.binary), 0, len(rows))
        return arrays(await client.infer("segmentation", [whole], timeout_ms=None))["y"]

    try:
        rows = np.arange(12, dtype=np.float32).reshape(3, 4)
        assert np.array_equal(await infer(rows), np.where(rows > 2, rows, -1))
        with pytest.raises(ModelServerError, match=r"answered 400: rows of x have four numbers$"):
            await infer(rows[:, :3])
    finally:
        await client.close()
