"""Inputs of a stage: outputs of earlier stages by name."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler.model.message_text import quoted
from scheduler.oip.batch import select
from scheduler.oip.errors import MessageError
from scheduler.oip.tensor import Tensor


class StageInput(NamedTuple):
    """An input of a stage, and the output of an earlier stage that it takes."""

    name: str
    stage: str
    output: str


def stage_inputs(
    sources: Sequence[StageInput], outputs: Mapping[str, Sequence[Tensor]]
) -> tuple[Tensor, ...]:
    """Return the inputs of a stage for one request.

    Args:
        sources: declared inputs; empty: all outputs of ``outputs`` under their names.
        outputs: outputs of the earlier stages for this request, by stage.

    Raises:
        MessageError: an output is missing, or two outputs have one name or different rows.
    """
    if sources:
        inputs = [
            select(outputs.get(stage, ()), [output], f"stage {quoted(stage)}")[0]._replace(
                name=name, parameters={}
            )
            for name, stage, output in sources
        ]
    else:
        inputs = [tensor._replace(parameters={}) for group in outputs.values() for tensor in group]
    by_name = {tensor.name: tensor for tensor in inputs}
    if len(by_name) < len(inputs):
        raise MessageError(
            "two earlier stages have an output of the same name; declare the stage's inputs", 502
        )
    if len({tensor.rows for tensor in inputs}) > 1:
        raise MessageError(
            "the earlier stages answered one request with different numbers of rows", 502
        )
    return tuple(inputs)
