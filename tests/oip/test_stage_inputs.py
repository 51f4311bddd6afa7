"""Outputs of earlier stages become inputs of a stage."""

import numpy as np
import pytest

from scheduler.oip.batch import RowRange, join
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import RequestedOutput, parse_request
from scheduler.oip.infer_response import parse_response
from scheduler.oip.stage_inputs import StageInput, stage_inputs
from tests.oip import naive


def outputs(names, array, *, binary=True):
    tensors = [(name, "INT16", array) for name in names]
    body, length = naive.encode({"outputs": tensors}, binary=set(names) if binary else set())
    return parse_response(body, length, rows=len(array))


BOXES = np.array([[1, 2], [3, 4]])
VECTORS = np.array([5, 6])


def test_a_join_takes_outputs_of_two_stages_by_name():
    """One of them answered in binary, the other in JSON; the next server gets binary."""
    earlier = {"detect": outputs("ab", BOXES), "embed": outputs("a", VECTORS, binary=False)}
    sources = [StageInput("boxes", "detect", "b"), StageInput("vector", "embed", "a")]
    client = parse_request(*naive.encode({"inputs": [("x", "FP32", BOXES)]}, id="7"))
    inputs = stage_inputs(sources, earlier)
    request = client.at_stage(inputs, [RequestedOutput("y", None, {})]).in_form(binary=True)
    assert (request.id, request.rows) == ("7", 2)
    assert request.joinable != client.joinable
    fields, tensors = naive.decode(
        *naive.sent(join([RowRange(request, 0, 2)], binary=True)), "inputs"
    )
    assert {name: array.tolist() for name, (_, array) in tensors.items()} == {
        "boxes": [[1, 2], [3, 4]],
        "vector": [5, 6],
    }
    assert fields == {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}


def test_without_declared_inputs_all_outputs_pass_under_their_names():
    inputs = stage_inputs([], {"first": outputs("ab", BOXES), "second": outputs("c", VECTORS)})
    assert [tensor.name for tensor in inputs] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("sources", "earlier", "pattern"),
    [
        (["sb"], {"s": outputs("a", BOXES)}, "stage 's' lacks output 'b'; it has 'a'"),
        (["ta"], {"s": outputs("a", BOXES)}, "stage 't' lacks output 'a'; it has none"),
        ([], {"s": outputs("a", BOXES), "t": outputs("a", VECTORS)}, "output of the same name"),
        (
            [],
            {"s": outputs("a", BOXES), "t": outputs("b", VECTORS[:1])},
            "different numbers of rows",
        ),
    ],
    ids=["output", "stage", "names", "rows"],
)
def test_inputs_that_do_not_fit_are_an_error_of_the_servers(sources, earlier, pattern):
    with pytest.raises(MessageError, match=pattern) as caught:
        stage_inputs([StageInput("x", *source) for source in sources], earlier)
    assert caught.value.status == 502
