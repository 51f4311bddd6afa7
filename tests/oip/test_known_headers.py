"""Headers that came before: the result is that of a first reading, for valid and other bodies."""

import json

from hypothesis import given
from hypothesis import strategies as st

from scheduler.oip import batch, infer_request, infer_response
from scheduler.oip.batch import RowRange, join
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import parse_request
from scheduler.oip.infer_response import parse_response, write_response
from scheduler.oip.known_headers import HEADERS_MAX
from tests.oip.strategies import clients, columns


def outcome(body, header_length):
    """Return all that a request contains, or its error."""
    try:
        request = parse_request(body, header_length)
    except MessageError as error:
        return str(error), error.status
    contents = [
        [part.content if type(part.content) is list else bytes(part.content) for part in t.parts]
        for t in request.inputs
    ]
    return request._replace(inputs=[t._replace(parts=()) for t in request.inputs]), contents


def requests(draw, group):
    """Return a client's body, as it is or damaged, and its header length."""
    client = draw(clients(group))
    body, length = bytearray(client.body), client.header_length
    change = draw(st.sampled_from(["none", "data", "cut", "longer", "length"]))
    if change == "data" and length is not None and len(body) > int(length):
        body[-1] ^= 0xFF
    elif change == "cut":
        del body[-1:]
    elif change == "longer":
        body += b"x"
    elif change == "length" and length is not None:
        length = str(int(length) + draw(st.integers(-2, 2)))
    return bytes(body), length


@given(st.data())
def test_a_known_header_changes_no_result(data):
    """Requests of one shape, in any order, give the same as each of them alone."""
    group = data.draw(columns())
    bodies = [requests(data.draw, group) for _ in range(data.draw(st.integers(1, 4)))]
    alone = []
    for body, length in bodies:
        infer_request._HEADERS.clear()
        alone.append(outcome(body, length))
    infer_request._HEADERS.clear()
    for _ in range(2):
        assert [outcome(body, length) for body, length in bodies] == alone


def joined(ranges, timeout_us):
    """Return all that a message to a model server contains."""
    message = join(ranges, binary=True, timeout_us=timeout_us)
    return message.header, list(map(bytes, message.buffers)), message.header_length


@given(st.data())
def test_a_known_header_of_a_batch_changes_no_message(data):
    """Batches of joinable requests, in any order, give the same as each one alone."""
    senders = data.draw(st.lists(clients(data.draw(columns())), min_size=1, max_size=4))
    requests = [parse_request(sender.body, sender.header_length) for sender in senders]
    pieces = [RowRange(request.in_form(binary=True), 0, request.rows) for request in requests]
    limits = st.sampled_from([None, 1000, 2000])
    batches = data.draw(
        st.lists(st.tuples(st.lists(st.sampled_from(pieces), min_size=1), limits), max_size=6)
    )
    alone = []
    for ranges, timeout_us in batches:
        batch._JOINED.clear()
        alone.append(joined(ranges, timeout_us))
    batch._JOINED.clear()
    for _ in range(2):
        assert [joined(*arguments) for arguments in batches] == alone


def answer_outcome(body, header_length, rows):
    """Return all that an answer contains, or its error."""
    try:
        outputs = parse_response(body, header_length, rows=rows)
    except MessageError as error:
        return str(error), error.status
    return [
        (t._replace(parts=()), [bytes(part.content) for part in t.parts if part.is_binary])
        for t in outputs
    ]


@given(st.data())
def test_a_known_header_of_an_answer_changes_no_result(data):
    """Answers with the same header, for batches of any number of rows, are read as if alone."""
    bodies = []
    for _ in range(data.draw(st.integers(1, 4))):
        rows, sent, size = (data.draw(st.integers(1, 2)) for _ in range(3))
        size += sent - 1
        tensor = {"name": "y", "shape": [sent], "datatype": "UINT8"}
        tensor["parameters"] = {"binary_data_size": sent}
        header = json.dumps({"outputs": [tensor]}).encode()
        body = header + data.draw(st.binary(min_size=size, max_size=size))
        bodies.append((body, str(len(header)), rows))
    alone = []
    for body, length, rows in bodies:
        infer_response._HEADERS.clear()
        alone.append(answer_outcome(body, length, rows))
    infer_response._HEADERS.clear()
    for _ in range(2):
        assert [answer_outcome(*body) for body in bodies] == alone


TENSOR = {"name": "x", "shape": [1], "datatype": "UINT8", "parameters": {"binary_data_size": 1}}


def with_id(name, *, separators=None):
    """Return a request with an id in front."""
    document = {"id": name, "inputs": [TENSOR]}
    header = json.dumps(document, separators=separators).encode()
    return parse_request(header + b"\7", str(len(header)))


def test_requests_that_differ_in_their_id_share_a_header():
    """Clients number their requests; the forms of Python's json and of tritonclient are known."""
    for separators in (None, (",", ":")):
        infer_request._HEADERS.clear()
        for name in ("a", "request-2", "", "three words", 'with "quotes"', "ä", "\u200b"):
            assert with_id(name, separators=separators).id == name
        assert len(infer_request._HEADERS) == 4  # one, and the three that JSON escapes


def test_the_number_of_known_headers_is_bounded():
    """Clients cannot fill the memory, and a request keeps no body alive."""
    infer_request._HEADERS.clear()
    for number in range(2 * HEADERS_MAX):
        with_id(f'"{number}')
    assert len(infer_request._HEADERS) <= HEADERS_MAX
    assert all(request.inputs == () for request, _ in infer_request._HEADERS.values())


@given(
    names=st.lists(st.one_of(st.none(), st.text(max_size=4)), min_size=2, max_size=4),
    rows=st.integers(0, 3),
    model=st.text(min_size=1, max_size=3),
)
def test_a_written_header_changes_no_answer(names, rows, model):
    """Answers of one shape have their own id and data, after any answers before them."""
    infer_response._WRITTEN.clear()
    for number, name in enumerate(names):
        document = {"inputs": [TENSOR], "parameters": {"binary_data_output": True}}
        header = json.dumps(document if name is None else {"id": name, **document}).encode()
        request = parse_request(header + b"\7", str(len(header)))
        tensor = {"name": "y", "shape": [rows, 2], "datatype": "UINT8"}
        tensor["parameters"] = {"binary_data_size": 2 * rows}
        content = bytes([number] * 2 * rows)
        header = json.dumps({"outputs": [tensor]}).encode()
        outputs = parse_response(header + content, str(len(header)), rows=rows)
        message = write_response(model, request, outputs)
        written = {"model_name": model} | ({} if name is None else {"id": name})
        assert json.loads(message.header) == {**written, "outputs": [tensor]}
        assert b"".join(message.buffers) == content
        assert message.header_length == len(message.header)
