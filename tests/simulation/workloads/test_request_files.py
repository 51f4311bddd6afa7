"""A user's file of requests: it arrives as it is written, or is refused with the line."""

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from tests.examples import examples
from tests.simulation.workloads.arriving import WORKFLOWS, collected, is_open, requests_csv
from workbench.simulation.workloads import requests
from workbench.simulation.workloads.requests import Requests

NAMES = ("a", "default/a", "default/b", "other/b", "c", "other/c")
INDICES = (0, 0, 1, 2, 3, 3)


def written(folder, content):
    file = folder / "requests.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def message_of(file, workflows=WORKFLOWS):
    """Return the error message of a file without its name; the error holds no file open."""
    with pytest.raises(DocumentError) as raised:
        Requests(file=file).arrivals(workflows, seed=1)
    assert not is_open(file)
    message = str(raised.value)
    assert message.startswith(f"{file}: ")
    return message.removeprefix(f"{file}: ")


times = st.lists(st.floats(0, 3e10), min_size=1, max_size=30).map(sorted)


@examples(60)
@given(times, st.data(), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_requests_arrive_as_they_are_written(
    tmp_path_factory, times_ms, data, end, quotes, from_first
):
    """Each time to the last digit, whatever the line ends, quotes and other columns."""
    which = data.draw(st.lists(st.integers(0, 5), min_size=len(times_ms), max_size=len(times_ms)))
    quote = '"' if quotes else ""
    rows = (f" {quote}{NAMES[i]}{quote},x, {t!r} " for t, i in zip(times_ms, which, strict=True))
    text = end.join([f"{quote}workflow{quote},note,time_ms", *rows])
    file = written(tmp_path_factory.mktemp("requests"), text.replace(f" {quote}", quote))
    workload = Requests(file=file, from_first=from_first)
    arrived_ms, indices = collected(workload.arrivals(WORKFLOWS, seed=1))
    start_ms = times_ms[0] if from_first else 0.0
    assert [t - start_ms for t in times_ms] == arrived_ms.tolist()
    assert [INDICES[i] for i in which] == indices.tolist()


def test_seconds(tmp_path):
    """A column time_s in place of time_ms, with a byte order mark and empty lines."""
    file = written(tmp_path, "\ufefftime_s,workflow\r\n\r\n0,a\r\n1.5,c\r\n2e0,a\r\n\r\n")
    times_ms, indices = collected(Requests(file=file).arrivals(WORKFLOWS, seed=1))
    assert times_ms.tolist() == [0.0, 1500.0, 2000.0]
    assert indices.tolist() == [0, 3, 0]


def test_rates_are_those_of_the_whole_file(tmp_path):
    """Over the time until the last request, or over a second where that is more."""
    file = requests_csv(tmp_path / "requests.csv", [(0, "a"), (10_000, "a"), (20_000, "c")])
    rates = Requests(file=file).mean_rate_rps(WORKFLOWS)
    assert list(rates.values()) == [0.1, 0.0, 0.0, 0.05]
    file = requests_csv(tmp_path / "one.csv", [(1_700_000_000_000, "a")])
    workload = Requests(file=file, from_first=True)
    assert list(workload.mean_rate_rps(WORKFLOWS[:1]).values()) == [1.0]


def test_holes_are_told_and_stop_nothing(tmp_path):
    """Longer than the parameter, at the start too, the first twenty of them one by one."""
    rows = [(i * 90_000 + 120_000, "a") for i in range(30)]
    file = requests_csv(tmp_path / "requests.csv", [*rows, (rows[-1][0], "c")])
    arrivals = Requests(file=file, hole_minutes=1.0).arrivals(WORKFLOWS, seed=1)
    assert collected(arrivals)[0].size == 31
    assert all(warning.warning for warning in arrivals.warnings)
    message = [str(warning).removeprefix(f"{file}: ") for warning in arrivals.warnings]
    elsewhere = "; if times have another origin, set fromFirst: true"
    assert message[0] == f"line 2: there is no request in the 2.0 minutes before it{elsewhere}"
    assert message[1] == "line 3: there is no request in the 1.5 minutes before it"
    assert message[20:] == ["the file: has 10 more such gaps"]
    assert Requests(file=file).arrivals(WORKFLOWS, seed=1).warnings == ()
    few = Requests(file=file, hole_minutes=1.6).arrivals(WORKFLOWS, seed=1)
    assert [warning.document for warning in few.warnings] == ["line 2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file: is empty; its first line must name the columns"),
        ("\n\n", "the file: is empty; its first line must name the columns"),
        ("time_ms,workflow\n", "the file: has no row below the columns' names"),
        ("workflow\na\n", "the columns: none is time_ms or time_s; there are 'workflow'"),
        ("time_ms,name\n1,a\n", "the columns: none is workflow; there are 'time_ms', 'name'"),
        ("time_ms,time_s,workflow\n1,1,a\n", "the columns: time_ms and time_s both exist; "),
        ("time_ms,workflow,workflow\n1,a,a\n", "the columns: 'workflow' occurs 2 times; "),
        ("time_ms,workflow\n1,a\n0.5,a\n", "line 3: column time_ms: 0.5 is before the row above; "),
        ("time_s,workflow\n-1e-9,a\n", "line 2: column time_s: -1e-9 is negative; times count "),
        ("time_s,workflow\n1700000000,a\n", "line 2: time: is more than a year after the start; "),
        ("time_s,workflow\nsoon,a\n", "line 2: column time_s: 'soon' is not a finite number"),
        ("time_s,workflow\n,a\n", "line 2: column time_s: '' is not a finite number"),
        ("time_ms,workflow\nnan,a\n", "line 2: column time_ms: 'nan' is not a finite number"),
        ("time_ms,workflow\n1e999,a\n", "line 2: column time_ms: '1e999' is not a finite number"),
        ("time_s,workflow\n1e12,a\n", "line 2: column time_s: '1e12' is more than 1e+14 ms; is it"),
        ("time_ms,workflow\n1,A\n", "line 2: column workflow: 'A' is not a workflow; there are "),
        ("time_ms,workflow\n1,b\n", "line 2: column workflow: 'b' is in namespaces default, other"),
        ("time_ms,workflow\n\n1,a\n2,a,x\n", "line 4: has 3 values for 2 columns"),
        ("time_ms,workflow\n1\n", "line 2: has 1 values for 2 columns"),
        ('time_ms,workflow\n1,"a', "line 2: is not valid CSV: unexpected end of data"),
        ('time_ms,workflow\n1,"a"b\n', "line 2: is not valid CSV: ',' expected after '\"'"),
        ("time_ms,workflow\r1,a\r", "line 1: is not valid CSV: new-line character seen in "),
        ("time_ms,workflow\n1,a\n2,\xe9\n".encode("latin-1"), "line 3: is not UTF-8: "),
        ("time_ms,workflow\n1,a\n".encode("utf-16"), "line 1: is not UTF-8: invalid start byte"),
        ("time_ms,workflow\n1,a\n".encode("utf-16-le"), "the columns: none is time_ms or time_s; "),
    ],
)
def test_what_is_wrong_is_told(tmp_path, content, message):
    """With the line and the column, and what to do."""
    assert message_of(written(tmp_path, content)).startswith(message)


def test_a_file_that_gets_worse_under_way(tmp_path):
    """It is read again for each run, with the same eyes."""
    file = requests_csv(tmp_path / "requests.csv", [(1, "a")])
    arrivals = Requests(file=file).arrivals(WORKFLOWS, seed=1)
    requests_csv(file, [(1, "x")])
    message = "line 2: column workflow: 'x' is not a workflow"
    with pytest.raises(DocumentError, match=message) as raised:
        collected(arrivals)
    assert not is_open(file), raised


def test_memory_is_flat(tmp_path, monkeypatch):
    """At most one chunk of the file is in memory."""
    monkeypatch.setattr(requests, "CHUNK_MAX", 1_000)
    peaks = []
    for count in (2_000, 8_000):
        file = requests_csv(tmp_path / f"{count}.csv", [(i, "a") for i in range(count)])
        tracemalloc.start()
        try:
            arrivals = Requests(file=file).arrivals(WORKFLOWS, seed=1)
            sizes = [times_ms.size for times_ms, _ in arrivals.chunks()]
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert sum(sizes) == count
        assert max(sizes) == 1_000
    assert peaks[1] < 1.2 * peaks[0]


@examples(150)
@given(st.binary(max_size=60) | st.text(' ,"\r\n0123.e-ac', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    """No file ends in anything but arrivals or a message."""
    folder = tmp_path_factory.mktemp("any")
    for start in (b"", b"time_ms,workflow\n", b"time_ms,workflow\n1,a\n2,"):
        with suppress(DocumentError):
            arrivals = Requests(file=written(folder, start + content)).arrivals(WORKFLOWS, seed=1)
            assert collected(arrivals)[0].size >= 1
