"""The tutorial's files and commands: a real MLServer, its measured profiles, and requests."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
import yaml
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from scheduler.cluster.resource import FUNCTION_PROFILES, FUNCTION_SERVERS, PODS, WORKFLOWS
from tests.gateway.factories import pod
from tests.gateway.test_process import running
from tests.local.harness import local_gateway
from tests.testbed import REPOSITORY
from tests.testbed.mlserver_process import PROGRAM, needs_mlserver
from tests.testbed.model_server_process import START_S
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard
from workbench.cluster.process import free_port

pytestmark = [pytest.mark.slow, pytest.mark.nightly, needs_mlserver]
TUTORIAL = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
MODELS = "encoder", "classify"
PYTHON = PROGRAM.with_name("python")
ESG = Path(sys.executable).with_name("esg")


def write_files(folder):
    """Write the tutorial's files: those that name themselves, and MLServer's settings."""
    for name, text in re.findall(r"```\w+\n# ([\w.-]+)\n(.*?)```", TUTORIAL, re.DOTALL):
        (folder / name).write_text(text, encoding="utf-8")
    [server] = re.findall(r"```json\n(.*?)```", TUTORIAL, re.DOTALL)
    (folder / "settings.json").write_text(server, encoding="utf-8")


def command(name):
    """Return the arguments of the tutorial's only command that begins so."""
    [arguments] = re.findall(rf"^\$ {name} (.*)$", TUTORIAL, re.MULTILINE)
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|(\S+)', arguments)]


def in_order(rows):
    """Return measured rows whose times grow with the batch, as on a machine without other work."""
    columns = [row.split(",") for row in rows.splitlines()]
    for place in (4, 5):  # latency_ms, p95_ms
        times_ms = sorted((row[place] for row in columns), key=float)
        for row, time_ms in zip(columns, times_ms, strict=True):
            row[place] = time_ms
    return map(",".join, columns)


async def run(*command, folder):
    """Run a command in a folder; return its output."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


def is_ready(port):
    try:
        with InferenceServerClient(f"127.0.0.1:{port}") as client:
            return all(client.is_model_ready(model) for model in MODELS)
    except InferenceServerException:
        return False


@pytest.fixture
def mlserver(tmp_path):
    """The server of the tutorial; yields the ports of gRPC and HTTP."""
    write_files(tmp_path)
    guard, port, http_port = Guard(), free_port(), free_port()
    environment = {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(http_port),
        "MLSERVER_GRPC_PORT": str(port),
        "MLSERVER_METRICS_ENDPOINT": "",
        "MLSERVER_METRICS_PORT": str(free_port()),
    }
    log_folder = tmp_path / "logs"
    log_folder.mkdir()
    process = Process(
        "mlserver",
        ["env", f"--chdir={tmp_path}", str(PROGRAM), "start", "."],
        log_folder=log_folder,
        guard=guard,
        environment=environment,
    )

    def start():
        process.start()
        process.wait_ready(lambda: is_ready(port), timeout_s=START_S)
        return port, http_port

    yield start
    process.kill()
    guard.close()


async def test_the_steps_of_the_tutorial(mlserver, tmp_path):
    """Each file and command works, and the last one prints what the tutorial shows."""
    await run(PYTHON, "make_models.py", folder=tmp_path)
    port, http_port = await asyncio.to_thread(mlserver)
    [head] = re.findall(r"\$ echo (\S+) > measured.csv", TUTORIAL)
    rows = [head]
    for arguments in re.findall(r"\$ python measure.py (.*) >> measured.csv", TUTORIAL):
        words = arguments.replace("8081", str(port)).split()
        rows += in_order(await run(sys.executable, "measure.py", *words, folder=tmp_path))
    (tmp_path / "measured.csv").write_text("\n".join(rows), encoding="utf-8")
    await run(ESG, "profiles", "import", *command("esg profiles import"), folder=tmp_path)

    for scheme, port_of_scheme in (("grpc", port), ("http", http_port)):
        url = f"{scheme}://127.0.0.1:{port_of_scheme}"
        local = [word.replace("grpc://127.0.0.1:8081", url) for word in command("esg local")]
        async with local_gateway(*local, "--port", free_port(), folder=tmp_path) as gateway:
            answer = await gateway.first_request()
            status, errors = await gateway.interrupt()
        assert status == 0
        # Measured on a busy machine, the SLO may be mostly margin.
        assert all(line.startswith("warning: ") for line in errors.splitlines()), errors
        assert [output["shape"] for output in answer["outputs"]] == [[1, 4]]

    await run(ESG, "check", *command("esg check"), folder=tmp_path)
    async with running(tmp_path) as gateway:
        for profile in yaml.safe_load_all((tmp_path / "profile.yaml").read_text()):
            gateway.api_server.put(FUNCTION_PROFILES, profile)
        for server in yaml.safe_load_all((tmp_path / "servers.yaml").read_text()):
            server["spec"]["port"] = port
            gateway.api_server.put(FUNCTION_SERVERS, server)
        workflow = yaml.safe_load((tmp_path / "workflow.yaml").read_text())
        gateway.api_server.put(WORKFLOWS, workflow)
        for model in MODELS:
            raw = pod(
                f"{model}-0",
                app=model,
                host="127.0.0.1",
                namespace="default",
                ports=[{"containerPort": port}],
            )
            gateway.api_server.put(PODS, raw)
        await gateway.until_health("/v1/queues", lambda _, text: text.count('"state":"ready"') == 2)
        printed = await run(sys.executable, "request.py", gateway.address, folder=tmp_path)
    assert f"$ python request.py localhost:8080\n{printed}" in TUTORIAL
