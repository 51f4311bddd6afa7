"""``esg local``: workflows over model servers that run already."""

import asyncio
import json
import shlex

import aiohttp
import numpy as np
import pytest
import yaml

from scheduler.gateway.settings import GatewaySettings
from scheduler.settings import Settings
from tests.command_line import esg
from tests.gateway.factories import profile, server, workflow
from tests.gateway.grpc_player import GrpcPlayer
from tests.local.harness import local_gateway, started
from workbench.cluster.api_requests import KINDS
from workbench.cluster.model_server import PlayedModelServer
from workbench.cluster.object_store import ObjectStore
from workbench.cluster.process import free_port
from workbench.local.first_request import curl_command
from workbench.local.gateway import run_local

LIMIT_S = 300
BOTH = ("--server", "encoder=http://127.0.0.1:1", "--server", "classify=grpc://127.0.0.1:1")


@pytest.fixture
def documents(tmp_path):
    """Two files: a workflow of two stages, and profiles with a server's model name."""
    first = workflow("w", ("encoder", "classify"), namespace="default")
    named = server("classify", "classify", namespace="default", model="model")
    profiles = [profile(f).model_dump(by_alias=True) for f in ("encoder", "classify")]
    files = []
    for name, contents in (("workflow", [first]), ("profile", [*profiles, named])):
        for document in contents:
            document.setdefault("apiVersion", "esg-scheduler.io/v1alpha1")
        kinds = {"stages": "Workflow", "gpus": "FunctionProfile", "port": "FunctionServer"}
        for document in contents:
            [document["kind"]] = [kinds[key] for key in document["spec"] if key in kinds]
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump_all(json.loads(json.dumps(contents))), encoding="utf-8")
        files += ["-f", str(file)]
    return files


def with_a_row(command):
    """Return the request with a number: the played servers double it, and not zero."""
    return command.replace('"data": [0]', '"data": [1.5]')


def late_request(command):
    """Return the request with an id, and too little time."""
    return command.replace("{", '{"id": "mine", ', 1) + " -H 'Esg-Deadline-Ms: 5'"


def server_options(encoder_port, classify_port):
    """Return the options that name the servers of both functions."""
    encoder = f"encoder=http://127.0.0.1:{encoder_port}"
    return ["--server", encoder, "--server", f"classify=grpc://127.0.0.1:{classify_port}"]


@pytest.mark.slow
async def test_the_printed_request_is_answered_by_both_servers(documents):
    """HTTP and gRPC servers run one workflow; the curl works as printed, and Ctrl-C ends it."""
    encoder, classify = PlayedModelServer(), GrpcPlayer()
    async with asyncio.timeout(LIMIT_S), encoder.serving(), classify.serve() as port:
        options = server_options(encoder.port, port)
        async with local_gateway(*documents, *options, "--port", free_port()) as gateway:
            answer = await gateway.first_request(with_a_row)
            ended = await gateway.interrupt()
    assert [output["data"] for output in answer["outputs"]] == [[6.0]]
    assert len(encoder.runs) == len(classify.requests) == 1
    assert "inference-header-content-length" in encoder.runs[0].headers  # binary, as its metadata
    assert ended == (0, "")


@pytest.mark.slow
async def test_an_input_that_two_first_stages_share_is_sent_once(tmp_path):
    """The printed request names it once, and the gateway answers."""
    first = {"slo": {"latencyMs": 10_000}, "stages": [
        {"name": "a", "function": "encoder"}, {"name": "b", "function": "encoder"},
        {"name": "c", "function": "encoder", "after": ["a", "b"],
         "inputs": [{"name": "x", "from": "a.y"}]},
    ]}  # fmt: skip
    manifests = [
        {"kind": "Workflow", "metadata": {"name": "w", "namespace": "default"}, "spec": first},
        {"kind": "FunctionProfile", **profile("encoder").model_dump(by_alias=True)},
    ]
    file = tmp_path / "documents.yaml"
    version = {"apiVersion": "esg-scheduler.io/v1alpha1"}
    file.write_text(
        yaml.safe_dump_all(json.loads(json.dumps([version | manifest for manifest in manifests]))),
        encoding="utf-8",
    )
    encoder = PlayedModelServer()
    async with asyncio.timeout(LIMIT_S), encoder.serving():
        options = "--server", f"encoder=http://127.0.0.1:{encoder.port}", "--port", "0"
        async with local_gateway("-f", file, *options) as gateway:
            answer = await gateway.first_request(with_a_row)
    assert answer["outputs"][0]["data"] == [6.0]


@pytest.mark.slow
async def test_a_late_request_is_explained(documents):
    """The live page is served, and the command that it prints says why a request was late."""
    encoder, classify = PlayedModelServer(run_ms=50), GrpcPlayer()
    async with asyncio.timeout(LIMIT_S), encoder.serving(), classify.serve() as port:
        options = server_options(encoder.port, port)
        async with local_gateway(*documents, *options, "--port", "0") as gateway:
            await gateway.first_request(late_request)
            [page] = [line.split()[-1] for line in gateway.lines if line.startswith("Live page:")]
            [why] = [line for line in gateway.lines if line.startswith("esg why --from ")]
            async with aiohttp.ClientSession() as session, session.get(page) as answer:
                assert "<title>esg-scheduler</title>" in await answer.text()
            words = shlex.split(why)[1:]
            late = await asyncio.to_thread(esg, *words)
            request = await asyncio.to_thread(esg, *words, "mine")
    assert late.stdout.splitlines()[1].startswith("mine ")
    assert "cause: " in request.stdout


@pytest.mark.slow
async def test_a_used_port_names_the_option(documents):
    """The message names --port, which the user gave, and not the gateway's variable alone."""
    encoder, classify = PlayedModelServer(), GrpcPlayer()
    async with asyncio.timeout(LIMIT_S), encoder.serving(), classify.serve() as port:
        options = server_options(encoder.port, port)
        async with started(*documents, *options, "--port", encoder.port) as gateway:
            status, errors = await gateway.end()
    assert status == 1
    assert "set another by --port" in errors


@pytest.mark.slow
async def test_ctrl_c_while_a_server_is_asked(documents):
    """A server that accepts and is silent keeps nobody waiting; the status is that of Ctrl-C."""
    connected = asyncio.get_running_loop().create_future()
    silent = await asyncio.start_server(lambda _, writer: connected.set_result(writer), "127.0.0.1")
    port = silent.sockets[0].getsockname()[1]
    servers = "--server", f"encoder=http://127.0.0.1:{port}", *BOTH[2:]
    async with asyncio.timeout(LIMIT_S), silent, started(*documents, *servers) as gateway:
        writer = await connected
        assert await gateway.interrupt() == (130, "stopped\n")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        (["encoder"], "'encoder' is not FUNCTION=URL"),
        (["=http://127.0.0.1:1"], "is not FUNCTION=URL"),
        (["grpc://127.0.0.1:8081"], "is not FUNCTION=URL"),
        (["encoder=127.0.0.1:8081"], "the URL has no scheme; write http:// or grpc://"),
        (["encoder=https://a:1"], "'https' is not a scheme of model servers; write http or grpc"),
        (["encoder=http://a"], "has no host and port; write http://127.0.0.1:8081"),
        (["encoder=http://a:99999"], "the port is no number from 1 to 65535"),
        (["encoder=http://a:1/v2/models/x"], "has a path; remove it"),
        (["encodr=http://a:1"], "no workflow runs this function; did you mean 'encoder'?"),
        (["x=http://a:1"], "no workflow runs this function; they run encoder, classify"),
        (["encoder=http://a:1", "encoder=http://a:2"], "--server encoder: is given twice"),
        (
            ["encoder=http://a:1"],
            "runs 'classify', which has no model server; add --server classify=grpc://HOST:PORT",
        ),
    ],
)
def test_a_wrong_server_is_refused_with_the_remedy(documents, servers, message):
    """Nothing is started, and the exit status is 1."""
    done = esg("local", *documents, *(word for text in servers for word in ("--server", text)))
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_server_that_does_not_answer_is_named(documents):
    """Address and remedy are in the message."""
    port = free_port()
    servers = f"encoder=http://127.0.0.1:{port}", f"classify=grpc://127.0.0.1:{port}"
    done = esg("local", *documents, "--server", servers[0], "--server", servers[1])
    assert done.exit_code == 1
    assert f"--server encoder={servers[0].partition('=')[2]}: no server answers" in done.stderr
    assert "start it" in done.stderr


def test_documents_have_to_be_sound(documents):
    """A stage without a profile is an error, as in ``esg check``."""
    done = esg("local", *documents[:2], *BOTH)
    assert done.exit_code == 1
    assert "stage 'encoder' runs 'encoder', which has no FunctionProfile" in done.stderr


def test_profiles_alone_are_refused(documents):
    """There has to be a workflow to serve."""
    done = esg("local", *documents[2:], *BOTH)
    assert done.exit_code == 1
    assert "error: no Workflow in" in done.stderr


@pytest.mark.parametrize(
    ("described", "sent"),
    [([-1, 2], [1, 2]), ([1, 2], [1, 2]), (["-1", "2"], [1, 2]), ([2], [1, 2]), ([-1, -1], [1, 1])],
)
def test_the_first_request_has_one_row(tmp_path, described, sent):
    """Metadata have any number of rows, one, or leave them out; free sizes are one."""
    inputs = [{"name": "x", "datatype": "INT64", "shape": described}]
    command = curl_command("http://h", {"name": "w", "inputs": inputs}, tmp_path)
    [tensor] = json.loads(shlex.split(command)[-1])["inputs"]
    assert tensor["shape"] == sent
    assert tensor["data"] == [0] * (sent[0] * sent[1])


async def test_an_error_after_the_start_ends_the_gateway():
    """It is not lost while the gateway goes on in silence."""

    async def fail():
        raise LookupError("no URL")

    gateway = GatewaySettings(host="127.0.0.1", port=0)
    with pytest.raises(LookupError, match="no URL"):
        await run_local(ObjectStore(KINDS), Settings(), gateway, fail)


def test_long_bodies_are_in_a_file(tmp_path):
    """An image does not fit on a command line."""
    image = {"name": "image", "datatype": "FP32", "shape": [-1, 3, 8, 8]}
    command = curl_command("http://h/v2/models/w", {"name": "w", "inputs": [image]}, tmp_path)
    assert command == f"curl -s http://h/v2/models/w/infer -d @{tmp_path}/w.json"
    [tensor] = json.loads((tmp_path / "w.json").read_text())["inputs"]
    assert np.array(tensor["data"]).reshape(tensor["shape"]).shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    "inputs", [[], [{"name": "x", "datatype": "FP16", "shape": [-1]}]], ids=["unknown", "half"]
)
def test_there_is_no_curl_where_json_cannot_carry_the_inputs(tmp_path, inputs):
    """Half-precision numbers have no form in JSON, and metadata may have no inputs."""
    assert curl_command("http://h", {"name": "w", "inputs": inputs}, tmp_path) == ""
