"""TorchServe with the system's PyTorch, set as deploy/torchserve has it; it runs without a GPU."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from scheduler.model.function_server import FunctionServer
from tests.require import needing
from tests.testbed import REPOSITORY
from tests.testbed.machine_requirements import missing_packages
from tests.testbed.model_server_process import MODEL, ModelServerProcess, program
from workbench.cluster.process import free_port

BIN = program("torchserve", "")
RECIPE = REPOSITORY / "deploy" / "torchserve"
SERVER = FunctionServer.model_validate(
    yaml.safe_load((RECIPE / "function-server.yaml").read_text(encoding="utf-8"))
)
MODELS = Path(__file__).with_name("torch_models")
needs_torchserve = needing(
    (BIN / "torchserve").exists() and not missing_packages("torchserve"),
    "TorchServe is not installed: install openjdk-17-jre-headless and python3-torch of Debian, "
    "and run `make build/torchserve/.installed`",
)


class TorchServe(ModelServerProcess):
    """One TorchServe; it is ready when the probe of its pod says so."""

    model = MODEL

    def _command(self, folder: Path) -> Sequence[str]:
        self._folder = folder
        management = f"127.0.0.1:{free_port()}"
        template = SERVER.spec.template or {}
        [container] = template["spec"]["containers"]
        python, *_, script = container["readinessProbe"]["exec"]["command"]
        script = script.replace(
            "127.0.0.1:8081/models/segmentation", f"{management}/models/{self.model}"
        )
        self._probe = [str(BIN / python), "-c", script]
        addresses = (
            f"inference_address=http://127.0.0.1:{self.http_port}",
            f"management_address=http://{management}",
            f"metrics_address=http://127.0.0.1:{free_port()}",
            f"grpc_inference_port={self.grpc_port}",
            f"grpc_management_port={free_port()}",
            f"model_store={folder}",
        )
        text = (RECIPE / "config.properties").read_text(encoding="utf-8")
        config = folder / "config.properties"
        config.write_text("\n".join((text, *addresses)), encoding="utf-8")
        self._archive(folder)
        torchserve, *options = container["args"][:-1]
        return [
            "env",
            f"--chdir={folder}",
            str(BIN / torchserve),
            *options,
            f"--ts-config={config}",
        ]

    def _archive(self, folder: Path) -> None:
        """Write the model's archive."""
        subprocess.run(
            [
                BIN / "torch-model-archiver",
                f"--model-name={self.model}",
                "--version=1",
                f"--handler={MODELS / 'classifier.py'}",
                f"--extra-files={RECIPE / 'oip_handler.py'}",
                f"--export-path={folder}",
            ],
            check=True,
        )

    def _variables(self) -> Mapping[str, str]:
        # Two servers on a machine share neither the file of their process id nor their sockets.
        return dict.fromkeys(("TMPDIR", "TEMP"), str(self._folder))

    def _is_ready(self) -> bool:
        return subprocess.run(self._probe, check=False, capture_output=True).returncode == 0
