"""``esg profiles import --from``: files of other tools, with their columns and units."""

import pytest
import yaml

from tests.command_line import esg

GPU = "NVIDIA A100-SXM4-80GB"
PERF_HEADER = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
    "Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,"
    "p50 latency,p90 latency,p95 latency,p99 latency"
)
PERF = f"""\
{PERF_HEADER}
1,69.2,225,2148,64,206,11781,19,0,13891,18795,19753,21018
2,87.2,235,1973,9151,190,11346,17,0,21874,28557,29768,34766
"""
PERF_VERBOSE = f"""\
{PERF_HEADER},Avg latency,request/response,response wait,Avg GPU Utilization
1,160,230,2150,70,210,22300,30,10,24800,25300,26000,27100,25000,240,24760,GPU-0:0.5;
"""
INFERENCE = """\
Model,Batch,Concurrency,Model Config Path,Instance Group,Max Batch Size,Satisfies Constraints,\
Throughput (infer/sec),Avg Latency (ms),p95 Latency (ms),p99 Latency (ms),RAM Usage (MB)
resnet50,1,1,resnet50_config_0,1:GPU,8,Yes,164.0,6.1,6.3,8.1,2937.0
resnet50,1,2,resnet50_config_0,1:GPU,8,Yes,195.0,10.2,10.6,11.0,2897.0
resnet50,4,1,resnet50_config_0,1:GPU,8,Yes,320.0,12.4,13.0,14.1,2937.0
"""
GPU_MEMORY = """\
Model,GPU UUID,Batch,Concurrency,Model Config Path,Instance Group,Max Batch Size,\
Satisfies Constraints,GPU Memory Usage (MB),GPU Utilization (%),GPU Power Usage (W)
resnet50,GPU-0,1,1,resnet50_config_0,1:GPU,8,Yes,1099.0,16.2,85.3
resnet50,GPU-0,4,1,resnet50_config_0,1:GPU,8,Yes,1203.0,26.2,95.3
"""
GENAI = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),30.1,22.0,41.0,40.2,38.5,36.0,33.0,29.0,25.0
Request Latency (ms),"1,250.5",900.0,1800.0,1790.0,1650.0,1500.0,1400.0,1200.0,1000.0

Metric,Value
Request Throughput (per sec),0.80
"""
SHARE = ("--set", "function=net", "--set", "cpu=2", "--set", "gpu_percent=28")
MEMORY = ("--set", "memory_mib=1800")


def run(folder, tool, texts, *options):
    """Import files with these contents from a tool."""
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"{number}.csv")
        files[-1].write_text(text, encoding="utf-8")
    arguments = ["--from", tool, "--gpu-model", GPU, "--out", "-", *options]
    return esg("profiles", "import", *files, *arguments)


def rows(done):
    assert done.exit_code == 0, done.output
    return yaml.safe_load(done.stdout)["spec"]["gpus"][0]["configurations"]


def test_perf_analyzer_writes_microseconds(tmp_path):
    """The batch of each file is an option; only the row with one request at a time counts."""
    options = ("--batches", "1,4", *SHARE, *MEMORY)
    imported = rows(run(tmp_path, "perf-analyzer", [PERF, PERF_VERBOSE], *options))
    same = {"cpu": 2, "gpuPercent": 28, "memoryMib": 1800}
    assert imported == [
        {"batch": 1, "latencyMs": 13.891, "p95Ms": 19.753, **same},
        {"batch": 4, "latencyMs": 25, "p95Ms": 26, **same},
    ]


def test_a_file_without_a_percentile(tmp_path):
    """Each file has its own columns: what one has and another one lacks is left out there."""
    plain = "Concurrency,Inferences/Second,Avg latency\n1,160,25000\n"
    done = run(tmp_path, "perf-analyzer", [PERF, plain], "--batches", "1,4", *SHARE, *MEMORY)
    assert [row.get("p95Ms") for row in rows(done)] == [19.753, None]


def test_model_analyzer_with_its_gpu_file(tmp_path):
    """Model and batch are in the file, and the memory is in that of the GPU."""
    gpu_file = tmp_path / "gpu.csv"
    gpu_file.write_text(GPU_MEMORY, encoding="utf-8")
    options = ("--gpu-file", gpu_file, "--set", "cpu=2", "--set", "gpu_percent=28")
    done = run(tmp_path, "model-analyzer", [INFERENCE], *options)
    same = {"cpu": 2, "gpuPercent": 28}
    assert rows(done) == [
        {"batch": 1, "latencyMs": 6.1, "p95Ms": 6.3, "memoryMib": 1099, **same},
        {"batch": 4, "latencyMs": 12.4, "p95Ms": 13, "memoryMib": 1203, **same},
    ]
    assert yaml.safe_load(done.stdout)["metadata"]["name"] == "resnet50"


def test_genai_perf(tmp_path):
    """The latency of requests is a row of a table; its numbers may have separators."""
    options = ("--set", "batch=1", *SHARE, *MEMORY)
    (row,) = rows(run(tmp_path, "genai-perf", [GENAI], *options))
    assert (row["latencyMs"], row["p95Ms"]) == (1250.5, 1650)


@pytest.mark.parametrize(("unit", "latency_ms"), [("us", 1.2505), ("s", 1_250_500)])
def test_units_are_asked_for(tmp_path, unit, latency_ms):
    """A latency without a unit is refused; with an option it is converted."""
    unnamed = GENAI.replace("Request Latency (ms)", "Request Latency").partition("\nMetric,V")[0]
    options = ("--set", "batch=2", *SHARE, *MEMORY)
    done = run(tmp_path, "genai-perf", [unnamed], *options)
    assert done.exit_code == 1
    assert "names no unit; give --unit ns, us, ms or s" in done.stderr
    (row,) = rows(run(tmp_path, "genai-perf", [unnamed], *options, "--unit", unit))
    assert row["latencyMs"] == latency_ms


SHARE_OF_MODEL = SHARE[2:]  # a file of Model Analyzer has the name of the function
PROBLEMS = {
    "another batch": (
        "perf-analyzer", PERF, ("--batches", "8", *SHARE, *MEMORY),
        "69.2 inferences per second at 13.891 ms are a batch of 0.961, not of 8; correct the batch",
    ),
    "no batch": (
        "perf-analyzer", PERF, (*SHARE, *MEMORY), "has no batch; write --set batch=VALUE",
    ),
    "no memory": (
        "model-analyzer", INFERENCE, SHARE_OF_MODEL,
        "has no memory_mib; write --set memory_mib=VALUE",
    ),
    "requests at a rate": (
        "perf-analyzer", PERF.replace("Concurrency", "Request Rate"),
        ("--batches", "1", *SHARE, *MEMORY), "run perf_analyzer with --concurrency-range 1",
    ),
    "several requests at a time": (
        "perf-analyzer", PERF.replace("\n1,", "\n3,"), ("--batches", "1", *SHARE, *MEMORY),
        "has no row with concurrency 1",
    ),
    "several requests at a time by the throughput": (
        "genai-perf", GENAI.replace("0.80", "8.00"), ("--set", "batch=1", *SHARE, *MEMORY),
        "8 requests per second at 1,250.5 ms are 10 at a time; run genai-perf with --concurrency 1",
    ),
    "no mean": (
        "model-analyzer", INFERENCE.replace("Avg Latency", "p90 Latency"),
        (*SHARE_OF_MODEL, *MEMORY),
        "add perf_latency_avg and perf_latency_p95 to inference_output_fields",
    ),
    "a file of another tool": (
        "genai-perf", PERF, (*SHARE, *MEMORY), "give profile_export_genai_perf.csv",
    ),
    "a value that the file has": (
        "model-analyzer", INFERENCE, (*SHARE, *MEMORY),
        "--set function=net: the column 'Model' has it; remove one",
    ),
    "a value that no profile has": (
        "perf-analyzer", PERF, ("--batches", "1", *SHARE, *MEMORY, "--set", "gpu=28"),
        "--set gpu=28: unknown field 'gpu'; fields are function, batch",
    ),
    "no CSV": (
        "perf-analyzer", f'{PERF_HEADER}\n1,"', ("--batches", "1", *SHARE, *MEMORY), "is not CSV",
    ),
    "a row too short": (
        "perf-analyzer", f"{PERF_HEADER}\n1,2\n", (*SHARE, *MEMORY), "has 2 values for 13 columns",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tool", "text", "options", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_problems(tmp_path, tool, text, options, expected):
    """Each problem names the file and the remedy, and no document is printed."""
    done = run(tmp_path, tool, [text], *options)
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {tmp_path}/0.csv: ")
    assert expected in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GPU_MEMORY + GPU_MEMORY.splitlines()[1] + "\n", "a second GPU for one measurement"),
        (GPU_MEMORY.replace("1099.0", "1e999"), "line 2: GPU Memory Usage (MB) is '1e999'"),
    ],
    ids=["two GPUs", "no finite number"],
)
def test_gpu_files_without_the_memory_of_one_gpu(tmp_path, text, expected):
    """A measurement on two GPUs has no memory of one, and infinity is none."""
    gpu_file = tmp_path / "gpu.csv"
    gpu_file.write_text(text, encoding="utf-8")
    done = run(tmp_path, "model-analyzer", [INFERENCE], "--gpu-file", gpu_file, *SHARE_OF_MODEL)
    assert done.exit_code == 1
    assert expected in done.stderr


@pytest.mark.usefixtures("wide_terminal")
@pytest.mark.parametrize(
    "options",
    [
        ("--from", "perf-analyzer", "--batches", "1,2"),
        ("--from", "perf-analyzer", "--map", "batch=Batch"),
        ("--from", "perf-analyzer", "--batches", "1", "--set", "batch=2"),
        ("--batches", "1"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options):
    """Such options are refused before a file is read."""
    file = tmp_path / "absent.csv"
    done = esg("profiles", "import", file, "--gpu-model", GPU, "--out", "-", *options)
    assert done.exit_code == 2, done.output


HEADER = "function,batch,cpu,gpu_percent,latency_ms,memory_mib\n"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("f,1,1,50,60001,100", "line 2: column latency_ms: 60,001 ms for a batch of 1 is above"),
        (
            "f,1,1,50,10,100\nf,4,1,50,4.9,100",
            "line 3: column latency_ms: batch 4 takes 4.9 ms and batch 1 10 ms; give the time of",
        ),
    ],
)
def test_values_that_cannot_be_right(tmp_path, rows, expected):
    """A batch of one over a minute, and a batch that takes half the time of a smaller one."""
    file = tmp_path / "measured.csv"
    file.write_text(HEADER + rows + "\n", encoding="utf-8")
    done = esg("profiles", "import", file, "--gpu-model", GPU, "--out", "-")
    assert done.exit_code == 1
    assert expected in done.stderr


def test_noise_of_short_batches_is_no_fall(tmp_path):
    """Half of a time of 2 ms or less is noise, and the rows are imported as they are."""
    file = tmp_path / "measured.csv"
    file.write_text(HEADER + "f,1,1,50,2,100\nf,4,1,50,0.5,200\n", encoding="utf-8")
    done = esg("profiles", "import", file, "--gpu-model", GPU, "--out", "-")
    assert rows_of_generic(done) == [2, 0.5]


def test_a_mapped_column_without_a_unit(tmp_path):
    """The unit of perf_analyzer's column is not guessed: it would be a thousand times too slow."""
    file = tmp_path / "perf.csv"
    file.write_text(PERF.replace("\n2,", "\n#2,").split("#")[0], encoding="utf-8")
    options = ("--map", "latency_ms=p50 latency", "--set", "batch=1", *SHARE, *MEMORY)
    done = esg("profiles", "import", file, "--gpu-model", GPU, "--out", "-", *options)
    assert done.exit_code == 1
    assert "column p50 latency: names no unit, as latency_ms does; give --unit" in " ".join(
        done.stderr.split()
    )
    options += ("--unit", "us")
    done = esg("profiles", "import", file, "--gpu-model", GPU, "--out", "-", *options)
    assert rows_of_generic(done) == [13.891]


def rows_of_generic(done):
    return [row["latencyMs"] for row in rows(done)]
