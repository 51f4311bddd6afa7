"""Logs with a row for each request: which columns and times they may have, and their errors."""

import tarfile

import pytest

from scheduler.model.document_reader import DocumentError
from tests.data_of_others import DATA, needs_data
from tests.simulation.workloads.arriving import WORKFLOWS, collected, is_open
from workbench.simulation.workloads.request_log import LogTrace, RequestLog

GENTD26 = DATA / "traces" / "gentd26" / "lora_request_trace.tar.gz"
"""Requests of a service that generates images (Alibaba); not in this repository."""


def log_of(tmp_path, *rows, header="at,model"):
    file = tmp_path / "log.csv"
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


@needs_data
def test_the_requests_of_gentd26(tmp_path):
    """All of its requests arrive, by model, within the 24 days that it spans."""
    with tarfile.open(GENTD26) as archive:
        archive.extract("lora_request_trace.csv", tmp_path, filter="data")
    file = tmp_path / "lora_request_trace.csv"
    columns = {"time_column": "gmt_create", "function_column": "checkpoint_model_version_id"}
    trace = LogTrace.read(file, *columns.values())
    assert sum(int(counts.sum()) for counts in trace.counts.values()) == 26_823
    assert int(trace.counts["M0002"].sum()) == 8_234
    assert trace.minutes == 33_157
    times_ms, _ = collected(RequestLog(file=file, **columns).arrivals(WORKFLOWS, seed=1))
    assert times_ms.size == 26_823
    assert times_ms[-1] < trace.minutes * 60_000


@pytest.mark.parametrize(
    "times",
    [
        ("2024-11-15 16:57:50", "2024-11-15 16:58:50.5", "2024-11-15 17:00:49"),
        ("2024-11-15T16:57:50Z", "2024-11-15T17:58:50+01:00", "2024-11-15T17:00:49Z"),
        ("0", "60", "179.9"),
        ("1e9", "1000000060", "1000000179"),
    ],
)
def test_times_are_dates_or_seconds(tmp_path, times):
    """Minutes count from the first request, also where the rows are not sorted."""
    first, second, third = times
    file = log_of(tmp_path, f"{third},b", f"{first},a", f"{second},b")
    trace = LogTrace.read(file, "at", "model")
    assert {name: counts.tolist() for name, counts in trace.rows()} == {
        "b": [0, 1, 1],
        "a": [1, 0, 0],
    }


def test_without_a_column_of_functions_all_are_of_one(tmp_path):
    file = log_of(tmp_path, "0,a", "61,b")
    workload = RequestLog(file=file, time_column="at", workflow_of="at-random")
    rates = workload.mean_rate_rps(WORKFLOWS)
    assert sum(rates.values()) == pytest.approx(2 / 120)


@pytest.mark.parametrize(
    ("rows", "column", "message"),
    [
        (["0,a"], "when", "the columns: none is 'when'; there are at, model"),
        (["0,a", "noon,a"], "at", "line 3: column at: 'noon' is no date and time"),
        (["nan,a"], "at", "line 2: column at: 'nan' is no date and time"),
        ([], "at", "the file: has no request"),
        (["0,a", "1e12,a"], "at", "column at: spans 16,666,666,667 minutes"),
    ],
)
def test_errors_name_line_and_column(tmp_path, rows, column, message):
    file = log_of(tmp_path, *rows)
    with pytest.raises(DocumentError) as raised:
        RequestLog(file=file, time_column=column).arrivals(WORKFLOWS, seed=1)
    assert not is_open(file)
    assert message in str(raised.value)
