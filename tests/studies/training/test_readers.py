"""Readers of traces and tables: a wrong row or entry is reported where it stands."""

import json

import pytest

from scheduler.model.document_reader import DocumentError
from studies.training.environment import WorkloadSource
from studies.training.environments.chronus_files import SPREAD_FILE, read_spread
from studies.training.environments.gavel_throughputs import THROUGHPUTS_FILE, read_throughputs
from studies.training.environments.job_rows import COLUMNS
from studies.training.environments.sharing_slowdowns import read_slowdowns
from studies.training.environments.synergy_files import PROFILES_FILE, read_workload
from studies.training.registry import environment_class
from tests.studies.training.harness import policy


def load(name, file):
    environment = environment_class(name)
    environment.load(environment.parameters_type(), WorkloadSource(workload=file))


@pytest.mark.parametrize(
    ("environment", "model"),
    [("tiresias", "any"), ("sharing", "generated-light"), ("andreas", "generated-1")],
)
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("num_gpu", "0", "'0' is no whole number from 1"),
        ("submit_time", "soon", "'soon' is no number"),
        ("duration", "-5", "'-5' is no whole number from 1"),
        ("job_id", "", "is empty"),
    ],
)
def test_a_wrong_row_with_a_duration_is_reported(
    tmp_path, environment, model, column, value, message
):
    """File, line and column are named."""
    row = dict(zip(COLUMNS, ("a", "1", "0", model, "60"), strict=True)) | {column: value}
    file = tmp_path / "jobs.csv"
    file.write_text(f"{','.join(COLUMNS)}\n{','.join(row.values())}\n", encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        load(environment, file)
    assert f"{file}: line 2: column {column}: {message}" in str(raised.value)


@pytest.mark.parametrize("environment", ["sharing", "andreas"])
def test_an_unknown_model_is_reported(tmp_path, environment):
    """The message lists those that there are."""
    file = tmp_path / "jobs.csv"
    file.write_text(f"{','.join(COLUMNS)}\na,1,0,gpt,60\n", encoding="utf-8")
    with pytest.raises(DocumentError, match="line 2: column model_name: there is no model 'gpt'"):
        load(environment, file)


def test_a_wrong_past_service_is_reported(tmp_path):
    """Line and column of the distribution that the Gittins index takes are named."""
    file = tmp_path / "past.csv"
    file.write_text("duration\n7\nlong\n", encoding="utf-8")
    with pytest.raises(DocumentError, match=r"past.csv: line 3: column duration: 'long'"):
        policy("gittins", distribution=file)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "the file: is no JSON object of GPU models"),
        ({"v100": 1}, "v100: is no JSON object"),
        ({"v100": {"net": {}}}, "v100: net is no pair of job type and GPUs"),
        ({"v100": {"('net', 1)": {"null": -1}}}, "v100: ('net', 1): null: -1 is no throughput"),
        (
            {"v100": {"('net', 1)": {"null": 1, "('net', 1)": [1]}}},
            "v100: ('net', 1): ('net', 1): [1] is no pair of throughputs",
        ),
    ],
)
def test_a_wrong_throughput_is_reported(tmp_path, table, message):
    """File and entry are named."""
    file = tmp_path / "throughputs.json"
    file.write_text(json.dumps(table), encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        read_throughputs(file)
    assert message in str(raised.value)


def test_slowdowns_need_a_known_gpu_model(tmp_path):
    """The file that lacks it is named."""
    file = tmp_path / THROUGHPUTS_FILE
    file.parent.mkdir(parents=True)
    file.write_text("""{"k80": {}}""", encoding="utf-8")
    with pytest.raises(DocumentError, match="json: the file: has no GPU model v100"):
        read_slowdowns(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            """{"net":\n {"2": {"1": 0}}}""",
            "line 2: column 9: net: 2: 1: Input should be greater than 0",
        ),
        (
            """{"net": {"two": {}}}""",
            "line 1: column 10: net: two: Input should be a valid integer",
        ),
        ("""{"net": 3}""", "line 1: column 2: net: Input should be"),
        ("""[3]""", "line 1: column 1: Input should be"),
    ],
)
def test_a_wrong_speed_is_reported(tmp_path, text, message):
    """File, line, column, model, GPUs and nodes are named."""
    file = tmp_path / SPREAD_FILE
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        read_spread(tmp_path)
    assert message in str(raised.value)


PROFILE = {"cpu_demand": 1, "mem_gb_demand": 20, "iteration_time_s": 0.2, "speedup": 1}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"speedup": 0.5}, "line 6: column 5: net_1: speedup: Input should be greater than or"),
        ({"cpu_demand": 1.5}, "line 3: column 5: net_1: cpu_demand: Input should be a valid int"),
        ({"iteration_time_s": float("inf")}, "line 5: column 5: net_1: iteration_time_s: Input"),
        ({"speedup": float("nan")}, "line 6: column 5: net_1: speedup: Input should be a finite"),
    ],
)
def test_a_wrong_profile_is_reported(tmp_path, entry, message):
    """File, line and column of the entry are named, also where a profile lacks it."""
    file = tmp_path / PROFILES_FILE
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"net_1": PROFILE | entry}, indent=2), encoding="utf-8")
    trace = tmp_path / "jobs.csv"
    trace.write_text("0,net,0,10,1\n", encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        read_workload(trace, tmp_path)
    assert f"{file}: {message}" in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("""{"net_1": {"cpu_demand": 1}}""", "line 1: column 2: net_1: mem_gb_demand: Field requ"),
        ("""{"net_1": """, "the file: Invalid JSON: EOF while parsing a value at line 1 column 10"),
    ],
)
def test_incomplete_profiles_are_reported(tmp_path, content, message):
    """A missing entry is reported where its profile stands."""
    file = tmp_path / PROFILES_FILE
    file.parent.mkdir(parents=True)
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        read_workload(tmp_path / "jobs.csv", tmp_path)
    assert f"{file}: {message}" in str(raised.value)
