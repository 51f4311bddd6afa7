"""``esg profiles import``: a CSV becomes FunctionProfiles, or every problem is reported."""

# ruff: noqa: E501 - a row of a table is one line

import csv
import io
import json
import os
import time

import pytest
import yaml

from tests.command_line import esg
from tests.data_of_others import DATA, needs_data

GPU = "Tesla V100-SXM2-16GB"
RAPP = DATA / "profiles" / "rapp-v100-mps.csv"
"""Measurements of others (KontonGu/RaPP), which are not in this repository."""

HEADER = "function,batch,cpu,gpu_percent,latency_ms,p95_ms,memory_mib\n"
GRID = f"""\
{HEADER}resnet50,1,1,25,40.5,44,1800
resnet50,1,1,50,24.125,26,1800
resnet50,2,1,25,64,70,1900
resnet50,2,1,50,38,41,1900
"""
LIKE_RAPP = """\
model,batch,sm_pct,quota_pct,latency_ms
Alex_Net,1,5,100.0,4.0
Alex_Net,1,10,100,5.0
Alex_Net,1,20,100,3.0
Alex_Net,2,5,100,7.5
Alex_Net,2,20,100,7.0
vgg,1,5,100,12
vgg,1,20,100,6
"""
LIKE_RAPP_OPTIONS = (
    "--map", "function=model", "--map", "gpu_percent=sm_pct", "--set", "cpu=1",
    "--set", "memory_mib=2000",
)  # fmt: skip


def run_import(folder, text, *options, gpu_model=GPU):
    """Run the command on a CSV with that content; return the result and the output path."""
    csv, out = folder / "measured.csv", folder / "profiles.yaml"
    csv.write_bytes(text if isinstance(text, bytes) else text.encode())
    arguments = ["--gpu-model", gpu_model, "--out", str(out), *options]
    return esg("profiles", "import", str(csv), *arguments), out


def profiles(folder, text, *options):
    """Import a valid CSV; return its documents by name."""
    done, out = run_import(folder, text, *options)
    assert done.exit_code == 0, done.output
    return {d["metadata"]["name"]: d for d in yaml.safe_load_all(out.read_text(encoding="utf-8"))}


def points(document):
    return [(c["batch"], c["cpu"], c["gpuPercent"]) for c in configurations(document)]


def configurations(document):
    return document["spec"]["gpus"][0]["configurations"]


def errors(folder, text, *options):
    """Import an invalid CSV; return its problems, after which no file may exist."""
    done, out = run_import(folder, text, *options)
    assert done.exit_code == 1, done.output
    assert not out.exists()
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    start = f"error: {folder}/measured.csv: "
    assert all(line.startswith((start, "error: and ")) for line in lines), lines
    return [line.removeprefix(start) for line in lines]


def test_a_full_grid(tmp_path):
    """Values stay as in the CSV; a full grid is not marked as sparse."""
    documents = profiles(tmp_path, GRID, "--cold-start-ms", "2300", "--output-mib", "1.5")
    assert documents == {
        "resnet50": {
            "apiVersion": "esg-scheduler.io/v1alpha1",
            "kind": "FunctionProfile",
            "metadata": {
                "name": "resnet50",
                "annotations": {"esg-scheduler.io/imported-from": "measured.csv"},
            },
            "spec": {
                "coldStartMs": 2300,
                "outputMib": 1.5,
                "gpus": [
                    {
                        "model": GPU,
                        "configurations": [
                            {"batch": 1, "cpu": 1, "gpuPercent": 25, "latencyMs": 40.5, "p95Ms": 44, "memoryMib": 1800},
                            {"batch": 1, "cpu": 1, "gpuPercent": 50, "latencyMs": 24.125, "p95Ms": 26, "memoryMib": 1800},
                            {"batch": 2, "cpu": 1, "gpuPercent": 25, "latencyMs": 64, "p95Ms": 70, "memoryMib": 1900},
                            {"batch": 2, "cpu": 1, "gpuPercent": 50, "latencyMs": 38, "p95Ms": 41, "memoryMib": 1900},
                        ],
                    }
                ],
            },
        }
    }  # fmt: skip


def test_columns_of_other_names(tmp_path):
    """Columns can be mapped or replaced by constants; names become labels, which is reported."""
    done, out = run_import(tmp_path, LIKE_RAPP, *LIKE_RAPP_OPTIONS)
    counts = "7 rows less 0 identical and 2 dominated: 5 configurations of 2 functions"
    assert done.exit_code == 0
    assert done.stderr.splitlines() == ["'Alex_Net' is named alex-net", counts]
    comments = ["# Imported from 'measured.csv' by esg profiles import.", f"# {counts}."]
    assert out.read_text(encoding="utf-8").splitlines()[:2] == comments
    alexnet, vgg = yaml.safe_load_all(out.read_text(encoding="utf-8"))
    assert alexnet["metadata"]["name"] == "alex-net"
    assert configurations(vgg) == [
        {"batch": 1, "cpu": 1, "gpuPercent": 5, "latencyMs": 12, "memoryMib": 2000},
        {"batch": 1, "cpu": 1, "gpuPercent": 20, "latencyMs": 6, "memoryMib": 2000},
    ]


def test_dominated_configurations_are_dropped(tmp_path):
    """A share of 10 that is slower than one of 5 is useless; the rest is not a grid."""
    alexnet = profiles(tmp_path, LIKE_RAPP, *LIKE_RAPP_OPTIONS)["alex-net"]
    assert points(alexnet) == [(1, 1, 5), (1, 1, 20), (2, 1, 5)]
    assert alexnet["spec"]["gpus"][0]["sparse"] is True


def test_imported_profiles_are_valid_and_can_be_planned(tmp_path):
    """`esg check` reports no problem, and `esg plan` plans with them."""
    run_import(tmp_path, LIKE_RAPP, *LIKE_RAPP_OPTIONS)
    answer = checked_and_planned(tmp_path, ["alex-net", "vgg"], slo_ms=20)
    assert answer["feasible"] is True
    assert answer["candidates"][0]["gpu_model"] == GPU


def checked_and_planned(folder, functions, slo_ms):
    """Check the folder's documents and plan a chain of these functions."""
    stages = [
        {"name": function, "function": function, "after": functions[max(0, i - 1) : i]}
        for i, function in enumerate(functions)
    ]
    workflow = {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "chain", "namespace": "default"},
        "spec": {"slo": {"latencyMs": slo_ms}, "stages": stages},
    }
    (folder / "workflow.yaml").write_text(yaml.safe_dump(workflow), encoding="utf-8")
    checked = esg("check", str(folder))
    assert checked.exit_code == 0, checked.output
    assert "1 Workflow: 0 errors, 0 warnings" in checked.output
    planned = esg("plan", "--profiles", str(folder), "--workflow", "chain", "--json")
    assert planned.exit_code == 0, planned.output
    return json.loads(planned.stdout)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_encodings_and_line_ends(tmp_path, ends, mark):
    """A byte order mark, the line ends of any system and empty lines make no difference."""
    expected = profiles(tmp_path, GRID)
    assert profiles(tmp_path, (mark + GRID + "\n").replace("\n", ends).encode()) == expected


def test_integers_with_a_decimal_point(tmp_path):
    """A spreadsheet's 5.0 is 5; the 95th percentile may be missing."""
    documents = profiles(tmp_path, HEADER + "f,1.0,2.0,5.0,3,,1e3\nf,1,1,5,4.5,5,1000.0\n")
    assert configurations(documents["f"]) == [
        {"batch": 1, "cpu": 1, "gpuPercent": 5, "latencyMs": 4.5, "p95Ms": 5, "memoryMib": 1000},
        {"batch": 1, "cpu": 2, "gpuPercent": 5, "latencyMs": 3, "memoryMib": 1000},
    ]


def test_identical_rows_are_one(tmp_path):
    """A repeated measurement is counted and is not an error."""
    done, out = run_import(tmp_path, GRID + "resnet50,1.0,1,25,40.50,44,1800\n")
    assert done.exit_code == 0
    assert "5 rows less 1 identical and 0 dominated: 4 configurations" in done.stderr
    assert len(configurations(yaml.safe_load(out.read_text(encoding="utf-8")))) == 4


def test_to_standard_output(tmp_path):
    """--out - prints only the documents, so that they can be piped."""
    csv = tmp_path / "measured.csv"
    csv.write_text(GRID, encoding="utf-8")
    done = esg("profiles", "import", str(csv), "--gpu-model", GPU, "--out", "-")
    run_import(tmp_path, GRID)
    assert done.exit_code == 0
    assert done.stdout == (tmp_path / "profiles.yaml").read_text(encoding="utf-8")


ROW = "f,1,1,5,3,4,1000\n"
COLUMNS = "'function', 'batch', 'cpu', 'gpu_percent', 'latency_ms', 'p95_ms', 'memory_mib'"
PROBLEMS = {
    "an empty file": ("", [], "the file: is empty; its first line must name the columns"),
    "no row": (HEADER, [], "the file: has no row below the column names"),
    "an open quote": (HEADER + 'f,"1', [], "line 2: is not CSV: unexpected end of data"),
    "UTF-16": (GRID.encode("utf-16"), [], "the file: cannot be read: it is not UTF-8"),
    "too few values": (HEADER + "f,1,1\n", [], "line 2: has 3 values for 7 columns"),
    "too many values": (HEADER + ROW + "f,1,1,5,3,4,1000,\n", [], "line 3: has 8 values for 7 columns"),
    "a column twice": ("cpu,cpu\n1,1\n", [], "the columns: 'cpu' occurs 2 times; rename one"),
    "semicolons": ("function;batch;cpu\nf;1;1\n", [], "the columns: are separated by ';'; write commas, and points in decimals"),
    "tabs": ("function\tbatch\tcpu\nf\t1\t1\n", [], "the columns: are separated by '\\t'; write commas"),
    "columns missing": ("model,batch,cpu,gpu_percent,ms,memory_mib\nf,1,1,5,3,1000\n", [], "the columns: none for function, latency_ms; there are 'model', 'batch', 'cpu', 'gpu_percent', 'ms', 'memory_mib'; write --map function=COLUMN --map latency_ms=COLUMN, or --set FIELD=VALUE for a value that all rows share"),
    "an unknown field mapped": (GRID, ["--map", "gpu=gpu_percent"], "--map gpu=gpu_percent: unknown field 'gpu'; fields are function, batch, cpu, gpu_percent, latency_ms, p95_ms, memory_mib"),
    "an unknown field set": (GRID, ["--set", "cold=1"], "--set cold=1: unknown field 'cold'; fields are function"),
    "an unknown column mapped": (GRID, ["--map", "cpu=cores"], f"--map cpu=cores: unknown column 'cores'; the columns are {COLUMNS}"),
    "set in spite of a column": (GRID, ["--set", "cpu=1"], "--set cpu=1: the column 'cpu' has it; remove one"),
    "set in spite of a mapping": (GRID, ["--map", "cpu=batch", "--set", "cpu=1"], "--set cpu=1: the column 'batch' has it; remove one"),
    "a time that is text": (HEADER + ROW + "f,1,1,9,fast,4,1000\n", [], "line 3: column latency_ms: Input should be a valid number (given: 'fast')"),
    "a time that is not there": (HEADER + "f,1,1,9,,4,1000\n", [], "line 2: column latency_ms: Input should be a valid number (given: '')"),
    "NaN": (HEADER + "f,1,1,9,NaN,4,1000\n", [], "line 2: column latency_ms: Input should be a valid number (given: 'NaN')"),
    "an infinite time": (HEADER + "f,1,1,9,1e999,4,1000\n", [], "line 2: column latency_ms: Input should be"),
    "a time below zero": (HEADER + "f,1,1,9,-3,4,1000\n", [], "line 2: column latency_ms: Input should be greater than 0 (given: '-3')"),
    "a time of a week": (HEADER + "f,1,1,9,604800000,4,1000\n", [], "line 2: column latency_ms: Input should be less than or equal to 86400000 (given: '604800000')"),
    "a tail of zero": (HEADER + "f,1,1,9,3,0,1000\n", [], "line 2: column p95_ms: Input should be greater than 0 (given: '0')"),
    "a tail that is text": (HEADER + "f,1,1,9,3,none,1000\n", [], "line 2: column p95_ms: Input should be a valid number (given: 'none')"),
    "half a batch": (HEADER + "f,1.5,1,9,3,4,1000\n", [], "line 2: column batch: Input should be a valid integer (given: '1.5')"),
    "no vCPU": (HEADER + "f,1,0,9,3,4,1000\n", [], "line 2: column cpu: Input should be greater than or equal to 1 (given: '0')"),
    "a share above 100": (HEADER + "f,1,1,101,3,4,1000\n", [], "line 2: column gpu_percent: Input should be less than or equal to 100 (given: '101')"),
    "memory with a unit": (HEADER + "f,1,1,9,3,4,1000M\n", [], "line 2: column memory_mib: Input should be a valid integer (given: '1000M')"),
    "a number with an underscore": (HEADER + "f,1,1,9,3,4,1_000\n", [], "line 2: column memory_mib: Input should be a valid integer (given: '1_000')"),
    "the mapped column's name": ("function,batch,cpu,sm,latency_ms,memory_mib\nf,1,1,0,3,1000\n", ["--map", "gpu_percent=sm"], "line 2: column sm: Input should be greater than or equal to 1 (given: '0')"),
    "a problem below a row of two lines": (HEADER + '"f\n",1,1,5,3,4,1000\nf,1,1,0,3,4,1000\n', [], "line 4: column gpu_percent: "),
    "ratios for percent": (HEADER + "f,1,1,0.25,3,4,1000\nf,1,1,1,2,3,1000\n", [], "all rows: column gpu_percent: all values are at most 1 and look like ratios; write 25 for a quarter"),
    "a share measured twice": (GRID + "resnet50,1,1,25,41,45,1800\n", [], "line 6: batch 1, cpu 1, gpu_percent 25 of 'resnet50' is on line 2 too, with different values; remove one"),
    "a name of signs": (HEADER + "__,1,1,5,3,4,1000\n", [], "line 2: column function: '__' is not a valid name: String should match pattern"),
    "a name too long": (HEADER + f"{'f' * 64},1,1,5,3,4,1000\n", [], f"line 2: column function: '{'f' * 64}' is not a valid name: String should have at most 63 characters"),
    "two names that become one": (HEADER + ROW + ROW.replace("f", "g_h") + ROW.replace("f", "G-H"), [], "line 4: column function: 'G-H' would be named g-h, like 'g_h' on line 3; rename one"),
    "a constant out of range": ("function,batch,gpu_percent,latency_ms,memory_mib\nf,1,5,3,9\nf,1,6,3,9\n", ["--set", "cpu=0"], "--set cpu=0: Input should be greater than or equal to 1 (given: '0')"),
    "no model of GPU": (GRID, ["--gpu-model", ""], "FunctionProfile resnet50: spec.gpus[0].model: String should have at least 1 character"),
    "a start of a week": (GRID, ["--cold-start-ms", "604800000"], "FunctionProfile resnet50: spec.coldStartMs: Input should be less than or equal to 86400000"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "options", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem(tmp_path, text, options, expected):
    """One line names file, place, problem and value; nothing is written."""
    (message,) = errors(tmp_path, text, *options)
    assert message.startswith(expected)


def test_all_problems_are_reported(tmp_path):
    """An invalid value hides no other problem, in its row or in another."""
    messages = errors(tmp_path, HEADER + "f,0,1,5,x,4,1000\n_,1,1,5,3,4,1000\nf,1,1,500,3,4,1000\n")
    assert [": ".join(line.split(": ")[:2]) for line in messages] == [
        "line 3: column function",
        "line 2: column batch",
        "line 2: column latency_ms",
        "line 4: column gpu_percent",
    ]


def test_problems_beyond_twenty_are_counted(tmp_path):
    """The first twenty are printed, then the number of the others."""
    messages = errors(tmp_path, HEADER + "f,0,1,5,3,4,1000\n" * 1500)
    assert len(messages) == 21
    assert messages[-1] == "error: and 1,480 more"


@pytest.mark.parametrize("option", ["--map", "--set"])
@pytest.mark.parametrize("values", [["cpu"], ["cpu=a", "cpu=b"], ["=cpu"]])
def test_malformed_options(tmp_path, option, values):
    """A malformed option is a usage error."""
    done, out = run_import(tmp_path, GRID, *(part for pair in values for part in (option, pair)))
    assert done.exit_code == 2
    assert option in done.stderr
    assert not out.exists()


def test_missing_files(tmp_path):
    """A missing input and an output that is a folder each give one line."""
    csv, folder = str(tmp_path / "no.csv"), str(tmp_path)
    done = esg("profiles", "import", csv, "--gpu-model", GPU, "--out", "-")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"error: {csv}: the file: cannot be read: No such file or directory\n"
    done, _ = run_import(tmp_path, GRID, "--out", folder)
    assert done.exit_code == 1
    assert done.stderr == f"error: {folder}: the file: cannot be written: Is a directory\n"


@pytest.mark.parametrize("name", ["a: b #.csv", "größe.csv", "a\nb.csv", os.fsdecode(b"\xff.csv")])
def test_any_names_of_files_and_gpus(tmp_path, name):
    """Any name of a file or GPU gives a valid document."""
    (tmp_path / name).write_text(GRID, encoding="utf-8")
    out = tmp_path / "profiles.yaml"
    done = esg(
        "profiles", "import", str(tmp_path / name), "--gpu-model", "a: b #", "--out", str(out)
    )
    assert done.exit_code == 0
    document = yaml.safe_load(out.read_text(encoding="utf-8"))
    assert document["spec"]["gpus"][0]["model"] == "a: b #"
    annotation = document["metadata"]["annotations"]["esg-scheduler.io/imported-from"]
    assert annotation == name.encode(errors="replace").decode()
    assert esg("check", str(out)).exit_code == 0


@needs_data
def test_a_large_file_of_others(tmp_path):
    """5,500 of its 55,000 rows: imported in linear time, valid, and used for a plan."""
    header, *rows = csv.reader(RAPP.read_text(encoding="utf-8").splitlines())
    quota = header.index("quota_pct")
    full_quota = [row for row in rows if row[quota] == "100"]

    def imported_s(count):
        text = io.StringIO()
        csv.writer(text).writerows([header, *full_quota[:count]])
        began_s = time.process_time()
        done, out = run_import(tmp_path, text.getvalue(), *LIKE_RAPP_OPTIONS)
        return time.process_time() - began_s, done, out

    quarter_s, *_ = imported_s(len(full_quota) // 4)
    whole_s, done, out = imported_s(len(full_quota))
    assert whole_s < 10 * quarter_s  # 16 times in quadratic time
    assert done.exit_code == 0, done.output
    documents = list(yaml.load_all(out.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))
    assert len(documents) == 69
    assert "5,500 rows less" in done.stderr
    answer = checked_and_planned(tmp_path, ["alexnet", "resnet50", "efficientnet-b0"], slo_ms=60)
    assert answer["feasible"] is True
    assert answer["candidates"][0]["path_ms"] <= 60
