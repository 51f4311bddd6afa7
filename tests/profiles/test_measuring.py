"""``esg profiles measure --url``: the profile of a played model server, and its errors."""

import json
from statistics import median

import numpy as np
import pytest
import yaml

from scheduler.agent.gpus.reading import DeviceReading, Process
from tests.command_line import esg
from tests.profiles.harness import grpc_server, http_server
from tests.reports.parsed import Page
from workbench.profiles.batch_inputs import BatchInputs, InputError
from workbench.profiles.gpu_memory import GpuMemoryError, server_memory_mib

GPU = "NVIDIA A100-SXM4-80GB"
OPTIONS = ("--model", "played", "--gpu-model", GPU, "--memory-mib", 900)
QUICK = ("--runs", 3, "--warm-up", 1, "--limit-s", 0.01)


def measure(url, *options, common=OPTIONS):
    return esg("profiles", "measure", "--url", url, *common, *options)


def http(server):
    return f"http://127.0.0.1:{server.port}"


def rows_of(text):
    return yaml.safe_load(text)["spec"]["gpus"][0]["configurations"]


def rows_per_run(server):
    return [run.rows for run in server.runs]


@pytest.mark.slow
def test_medians_are_those_of_the_server():
    """Medians have the times that the server took, and the machine's own time for a request."""
    with http_server(run_ms=150, row_ms=50) as server:
        runs = ("--runs", 10, "--runs-max", 10, "--warm-up", 1)
        done = measure(http(server), "--batches", "1,2", "--json", *runs)
        assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert [point["runs"] for point in answer["points"]] == [10, 10]
    for row in answer["profile"]["spec"]["gpus"][0]["configurations"]:
        taken_ms = server.times_ms[row["batch"]][2:]  # less the first run and the warm-up
        assert 1.0 <= row["latencyMs"] / median(taken_ms) < 1.5


def test_profile_of_a_server():
    """The profile has each batch, the resources as common, and the size of an output."""
    with http_server(run_ms=1) as server:
        done = measure(
            http(server), "--batch", 6, "--cpu", 2, "--gpu-percent", 28, "--cold-start-ms", 1500,
            *QUICK,
        )  # fmt: skip
    assert done.exit_code == 0, done.output
    profile = yaml.safe_load(done.stdout)
    assert profile["metadata"]["name"] == "played"
    assert profile["spec"]["coldStartMs"] == 1500
    assert profile["spec"]["outputMib"] == pytest.approx((4 + 16) / 2**20, abs=1e-6)
    rows = rows_of(done.stdout)
    assert [row["batch"] for row in rows] == [1, 2, 4, 6]
    assert {(row["cpu"], row["gpuPercent"], row["memoryMib"]) for row in rows} == {(2, 28, 900)}
    assert done.stderr.count("a limit ended it") == 4


def test_a_server_without_binary_tensors_gets_json():
    """MLServer has no such extension over HTTP; the option overrides what the server says."""
    with http_server(extensions=()) as server:
        assert measure(http(server), "--batches", 1, *QUICK).exit_code == 0
        assert "inference-header-content-length" not in server.runs[-1].headers
        binary = measure(http(server), "--batches", 1, "--protocol", "http-binary", *QUICK)
        assert binary.exit_code == 0
        assert "inference-header-content-length" in server.runs[-1].headers


def test_by_grpc():
    """The same by gRPC; the shape of one row completes metadata that leave it open."""
    with grpc_server() as (player, port):
        url = f"grpc://127.0.0.1:{port}"
        common = ("--model", "model", *OPTIONS[2:])
        done = measure(url, "--batches", "3", *QUICK, common=common)
        assert done.exit_code == 1
        assert "open shape [-1, -1]; give it with --input" in done.stderr
        done = measure(url, "--batches", "3", "--input", "x=5", *QUICK, common=common)
    assert done.exit_code == 0, done.output
    assert [row["batch"] for row in rows_of(done.stdout)] == [3]
    assert {tuple(request.inputs[0].shape) for request in player.requests} == {(3, 5)}


def test_rows_of_a_file(tmp_path):
    """The rows of a file are repeated up to the batch."""
    file = tmp_path / "rows.npy"
    np.save(file, np.array([[1.0], [2.0]]))
    with http_server() as server:
        sent = []
        double = server.outputs
        server.outputs = lambda inputs, number: sent.append(inputs["x"]) or double(inputs, number)
        done = measure(http(server), "--batches", "3", "--input", f"x={file}", *QUICK)
    assert done.exit_code == 0, done.output
    assert all(array.ravel().tolist() == [1.0, 2.0, 1.0] for array in sent)


def test_an_interrupted_measurement_goes_on(tmp_path):
    """Precise points of an earlier call are not measured again; a torn line is no point."""
    out = tmp_path / "profile.yaml"
    precise = ("--runs", 80, "--error-percent", 100, "--out", out)
    with http_server(run_ms=1) as server:
        assert measure(http(server), "--batches", "1,2", *precise).exit_code == 0
        points = out.with_suffix(".jsonl")
        lines = points.read_text(encoding="utf-8").splitlines(keepends=True)
        points.write_text(lines[0] + lines[1][:-20], encoding="utf-8")
        server.runs.clear()
        done = measure(http(server), "--batches", "1,2", *precise)
    assert done.exit_code == 0, done.output
    assert set(rows_per_run(server)) == {2}
    assert "1 of 2 batches are in" in done.stderr
    assert [row["batch"] for row in rows_of(out.read_text(encoding="utf-8"))] == [1, 2]


def test_lines_of_points_end_at_newlines_alone(tmp_path):
    """A name with another separator of lines hides neither its point nor those after it."""
    options = ("--model", "played", "--gpu-model", "a\u2028b", "--memory-mib", 900)
    out = tmp_path / "profile.yaml"
    with http_server(run_ms=1) as server:
        for batch in (1, 2):
            share = ("--batches", batch, "--out", out, *QUICK)
            assert measure(http(server), *share, common=options).exit_code == 0
    assert [row["batch"] for row in rows_of(out.read_text(encoding="utf-8"))] == [1, 2]


def test_another_share_is_added(tmp_path):
    """A call with another share completes the profile of the first."""
    out = tmp_path / "profile.yaml"
    with http_server(run_ms=1) as server:
        for percent in (50, 100):
            share = ("--batches", "1,2", "--gpu-percent", percent, "--out", out)
            assert measure(http(server), *share, *QUICK).exit_code == 0
    rows = rows_of(out.read_text(encoding="utf-8"))
    assert [(row["batch"], row["gpuPercent"]) for row in rows] == [
        (1, 50), (1, 100), (2, 50), (2, 100),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("points_are_lost", [True, False])
def test_a_file_that_would_be_lost_is_refused(tmp_path, points_are_lost):
    """No other document is overwritten, and no profile whose points have gone."""
    out = tmp_path / "f.yaml"
    with http_server() as server:
        if points_are_lost:
            assert measure(http(server), "--batches", 1, "-o", out, *QUICK).exit_code == 0
            (tmp_path / "f.jsonl").unlink()
        else:
            out.write_text("kind: Workflow\n", encoding="utf-8")
        text, runs = out.read_text(encoding="utf-8"), len(server.runs)
        done = measure(http(server), "--batches", 2, "-o", out, *QUICK)
    assert done.exit_code == 1
    assert "would be lost; name another file by -o, or remove it" in done.stderr
    assert (out.read_text(encoding="utf-8"), len(server.runs)) == (text, runs)


def test_page(tmp_path):
    """The page draws latency over batch, and lists each configuration."""
    plot = tmp_path / "page.html"
    with http_server(run_ms=1) as server:
        done = measure(http(server), "--batches", "1,4", "--plot", plot, *QUICK)
    assert done.exit_code == 0, done.output
    page = Page(plot.read_text(encoding="utf-8"))
    assert [row[:4] for row in page.rows[1:]] == [
        ["1", "1", "100", "900"],
        ["4", "1", "100", "900"],
    ]
    assert "2 configurations on NVIDIA A100" in page.all_of("figcaption")[0]


@pytest.mark.usefixtures("wide_terminal")
def test_errors():
    """Each error says what failed and what to do, and no profile is printed."""
    with http_server(fault="error") as server:
        url = http(server)
        for url_or_options, status, text in (
            ((url,), 1, "the played model failed"),
            (
                ("ftp://127.0.0.1:1",),
                2,
                "'ftp' is not a scheme of model servers",
            ),
            ((url, "--batches", "1,,2"), 2, "must have the form 1,2,4"),
            ((url, "--input", "z=3"), 1, "the model has no input 'z'; it has 'x'"),
            (
                (url, "--input", "x=none.npy"),
                1,
                "none.npy cannot be read: No such file or directory",
            ),
            ((url, "--input", "x=3,a"), 1, "neither a .npy file nor the shape of one row"),
            (
                ("http://127.0.0.1:1",),
                1,
                "http://127.0.0.1:1: no server answers",
            ),
        ):
            done = measure(*url_or_options, *QUICK)
            assert done.exit_code == status, done.output
            assert text in " ".join(done.stderr.split()), done.stderr
            assert done.stdout == ""


@pytest.mark.usefixtures("wide_terminal")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--batches", "1,5000"), "5000: Input should be less than or equal to 4096"),
        (("--memory-mib", 2_000_000), "Input should be less than or equal to 1048576"),
        (("--function", "n" * 64), f"'{'n' * 64}' is not a valid name: String should have at most"),
        (("--function", "…"), "'…' is not a valid name: String should match"),
    ],
    ids=["batch", "memory", "long name", "no letter"],
)
def test_what_no_profile_has_is_not_measured(options, text):
    """The option is refused before a batch runs, and not after the measurement."""
    with http_server() as server:
        done = measure(http(server), *QUICK, *options)
        assert done.exit_code == 2, done.output
        assert text in done.stderr
        assert not server.runs


@pytest.mark.usefixtures("wide_terminal")
@pytest.mark.parametrize(
    ("axes", "text"),
    [
        (("--shares", "50,101", "--cpus", "1"), "101: Input should be less than or equal to 100"),
        (("--shares", "50", "--cpus", "2000"), "2000: Input should be less than or equal to 1024"),
    ],
    ids=["share", "vCPUs"],
)
def test_a_grid_that_no_pod_has_is_not_measured(tmp_path, axes, text):
    """The same holds for the grid of a cluster: no pod is created."""
    template = {"spec": {"containers": [{"name": "server", "image": "none"}]}}
    server = {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "FunctionServer",
        "metadata": {"name": "f", "namespace": "default"},
        "spec": {
            "function": "f", "model": "m", "protocol": "grpc", "port": 8001, "template": template,
        },
    }  # fmt: skip
    file = tmp_path / "server.yaml"
    file.write_text(yaml.safe_dump(server), encoding="utf-8")
    done = esg("profiles", "measure", "-f", file, "--memory-mib", 900, "--batches", 1, *axes)
    assert done.exit_code == 2, done.output
    assert text in done.stderr


@pytest.mark.parametrize(
    ("inputs", "rows", "text"),
    [
        ([], None, "the model's metadata has no inputs"),
        (
            [{"name": "x", "datatype": "BYTES", "shape": [-1]}],
            np.zeros(3),
            "input 'x' is of BYTES, the file's values of float64; give a file of texts",
        ),
        ([{"name": "x", "datatype": "FP32", "shape": [-1]}], None, "cannot be read: No data"),
    ],
    ids=["no inputs", "numbers for texts", "an empty file"],
)
def test_batches_that_cannot_be_composed(tmp_path, inputs, rows, text):
    """The error names what the model or the file lacks."""
    file = tmp_path / "rows.npy"
    file.touch() if rows is None else np.save(file, rows)
    with pytest.raises(InputError, match=text):
        BatchInputs({"inputs": inputs}, {"x": str(file)} if inputs else {}).batch(2, binary=True)


def test_a_file_of_points_that_cannot_be_written(tmp_path, monkeypatch):
    """The error names the file; an error elsewhere is not one of the file."""
    with http_server(run_ms=1) as server:
        done = measure(http(server), "--batches", 1, *QUICK, "--points", tmp_path / "none" / "p")
    assert done.exit_code == 1
    assert f"{tmp_path}/none/p cannot be written: No such file" in " ".join(done.stderr.split())

    async def fail(*_):
        raise OSError("too many open files")

    monkeypatch.setattr("workbench.commands.measure.protocol_of", fail)
    with pytest.raises(OSError, match="too many open files"):
        measure("http://127.0.0.1:1", "--batches", 1, *QUICK)


class TestMemory:
    """Memory of a server by NVML's list of processes."""

    @staticmethod
    def gpu(*processes):
        return DeviceReading(
            index=0, uuid="GPU-0", model=GPU, memory_mib=80_000, multiprocessors=108,
            compute_capability=(8, 0), processes=processes,
        )  # fmt: skip

    def test_of_the_only_process(self):
        assert server_memory_mib(self.gpu(Process(7, 3 * 2**20 + 1)), ()) == 4

    def test_of_named_processes(self):
        gpu = self.gpu(Process(7, 2**20), Process(8, 2**21), Process(9, 2**22))
        assert server_memory_mib(gpu, (7, 8)) == 3

    @pytest.mark.parametrize(
        ("processes", "pids", "text"),
        [
            ((), (), "0 processes are on GPU 0"),
            ((Process(7, 1), Process(8, 1)), (), "2 processes are on GPU 0"),
            ((Process(7, 1),), (8,), "no memory of process 8"),
            ((Process(7, None),), (), "no memory of process 7"),
        ],
    )
    def test_unknown(self, processes, pids, text):
        with pytest.raises(GpuMemoryError, match=text):
            server_memory_mib(self.gpu(*processes), pids)
