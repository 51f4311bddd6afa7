"""Files of the Azure form: what they may look like, and what is told where one does not."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from tests.data_of_others import DATA, needs_data
from tests.examples import examples
from tests.simulation.workloads.arriving import WORKFLOWS, collected, is_open
from workbench.simulation.workloads.azure import Azure, AzureTrace

SAMPLE = DATA / "traces" / "azure-2019-100" / "invocations.csv"
"""100 functions of the Azure Functions 2019 data set, which are not in this repository."""

HEADER = "HashOwner,HashApp,HashFunction,Trigger,1,2"


def message_of(file, content):
    """Return the error message of a file without its name; the error holds no file open."""
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DocumentError) as raised:
        Azure(file=file).arrivals(WORKFLOWS, seed=1)
    assert not is_open(file)
    message = str(raised.value)
    assert message.startswith(f"{file}: ")
    return message.removeprefix(f"{file}: ")


@needs_data
def test_a_sample_of_the_data_set():
    """The trace keeps its own number of requests."""
    trace = AzureTrace.open_file(SAMPLE)
    assert (trace.first_minute, trace.minutes, len(list(trace.functions()))) == (480, 480, 100)
    times_ms, _ = collected(Azure(file=SAMPLE).arrivals(WORKFLOWS, seed=1))
    assert times_ms.size == 339_657
    assert times_ms[-1] < 480 * 60_000


def test_rows_of_one_function_belong_together(tmp_path):
    """A function that has a row for each trigger is one function."""
    file = tmp_path / "trace.csv"
    file.write_text(
        f"{HEADER}\no,p,f,http,1,2\no,p,g,http,0,4\no,p,f,timer,3,0\n", encoding="utf-8"
    )
    rates = Azure(file=file).mean_rate_rps(WORKFLOWS[:2])
    assert list(rates.values()) == [6 / 120, 4 / 120]


def test_other_columns_and_line_ends(tmp_path):
    """A function and minutes are enough; CRLF, a byte order mark and empty lines are no matter."""
    file = tmp_path / "trace.csv"
    file.write_bytes("\ufeffHashFunction,7,8\r\n\r\nf, 2 ,3\r\n\r\n".encode())
    assert [(name, row.tolist()) for name, row in AzureTrace.open_file(file).rows()] == [
        ("f", [2, 3])
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file: is empty; its first line must name the columns"),
        ("a,1,2\nf,1,2\n", "the columns: none is HashFunction; they must be HashOwner,"),
        ("HashFunction,a\nf,1\n", "the columns: none is a minute, named by its number; they"),
        ("HashFunction,1,3\nf,1,1\n", "the columns: 2 should follow 1, not '3'; they must"),
        ("HashFunction,1,a\nf,1,1\n", "the columns: 2 should follow 1, not 'a'; they must"),
        ("HashFunction,1,1\nf,1,1\n", "the columns: '1' occurs 2 times; rename one"),
        (f"{HEADER}\no,p,f,http,1\n", "line 2: has 5 values for 6 columns"),
        (f"{HEADER}\no,p,f,http,1,2\no,p,f,http,1,-2\n", "line 3: column 2: '-2' is not a whole"),
        (f"{HEADER}\no,p,f,http,1,2.0\n", "line 2: column 2: '2.0' is not a whole number"),
        (f"{HEADER}\no,p,f,http,,2\n", "line 2: column 1: '' is not a whole number from 0 to"),
        (f"{HEADER}\no,p,f,http,1,\u0662\n", "line 2: column 2: '\u0662' is not a whole number"),
        (f"{HEADER}\no,p,f,http,1,9999999999\n", "line 2: column 2: '9999999999' is not a whole"),
        (f"{HEADER}\no,p,f\xe9".encode("latin-1"), "line 2: is not UTF-8: unexpected end of data"),
        (f"{HEADER}\n" + "0" * (1 << 20) + "\n", "line 2: has more than 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, content, message):
    """With the line and the column."""
    assert message_of(tmp_path / "trace.csv", content).startswith(message)


def test_no_function_at_all(tmp_path):
    """Columns alone are no trace."""
    file = tmp_path / "trace.csv"
    file.write_text(f"{HEADER}\n", encoding="utf-8")
    with pytest.raises(DocumentError, match="no request of these functions is in the window"):
        Azure(file=file).arrivals(WORKFLOWS, seed=1)


def test_a_file_that_is_not_there(tmp_path):
    """Nor a folder in its place."""
    for path, reason in ((tmp_path / "none.csv", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(DocumentError, match=f"{path}: the file: cannot be read: {reason}"):
            Azure(file=path).mean_rate_rps(WORKFLOWS)


@examples(100)
@given(st.binary(max_size=60) | st.text(' ,"\r\n0123fx', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    """No file ends in anything but arrivals or a message."""
    folder = tmp_path_factory.mktemp("any")
    for start in (b"", f"{HEADER}\n".encode()):
        file = folder / "trace.csv"
        file.write_bytes(start + content)
        with suppress(DocumentError):
            collected(Azure(file=file, rate_rps=1.0).arrivals(WORKFLOWS, seed=1))
