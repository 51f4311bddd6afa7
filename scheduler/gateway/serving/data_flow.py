"""Tensors on their way through a workflow: from a client to its stages, and back to the client."""

from collections.abc import Mapping, Sequence

from scheduler.dispatch.stage_graph import StageGraph
from scheduler.model.documents import Workflow
from scheduler.model.message_text import quoted
from scheduler.oip.batch import select
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.stage_inputs import StageInput, stage_inputs
from scheduler.oip.tensor import Tensor

Outputs = Mapping[int, Sequence[Tensor]]
"""Outputs for one request, by index of the stage."""


class DataFlow:
    """Inputs of a workflow's stages, and the outputs that answer a request.

    The first stages get the client's inputs. The client gets the outputs of the last stages.
    """

    def __init__(self, workflow: Workflow) -> None:
        stages = workflow.spec.stages
        graph = StageGraph(stages)
        self._names = [stage.name for stage in stages]
        self._predecessors = graph.predecessors
        self._sources = [
            [StageInput(source.name, source.stage, source.output) for source in stage.inputs]
            for stage in stages
        ]
        self._first = graph.entries
        self._last = [i for i in range(len(stages)) if not graph.successors[i]]

    def ends(self, only: int | None) -> tuple[Sequence[int], Sequence[int]]:
        """Return the stages that get the client's inputs, and those whose outputs it gets.

        ``only`` is the index of the only stage that is run; None: all of them.
        """
        return (self._first, self._last) if only is None else ([only], [only])

    def request_at(
        self, stage: int, request: InferRequest, outputs: Outputs, *, only: bool
    ) -> InferRequest:
        """Return a client's request as it enters a stage.

        Args:
            stage: index of the stage.
            request: request of the client.
            outputs: outputs of the stages before.
            only: true if the client calls this stage alone.

        Raises:
            MessageError: an earlier stage lacks an output, or two have the same name.
        """
        # Only a lone last stage knows all outputs that the client requests.
        requested = request.outputs if only or self._last == [stage] else ()
        predecessors = () if only else self._predecessors[stage]
        if not predecessors:
            if requested is request.outputs or not request.outputs:
                return request
            return request.at_stage(request.inputs, requested)
        before = {self._names[i]: outputs[i] for i in predecessors}
        return request.at_stage(stage_inputs(self._sources[stage], before), requested)

    def answer(self, request: InferRequest, outputs: Outputs, only: int | None) -> Sequence[Tensor]:
        """Return the outputs for a client, all of them or those that it requests.

        Args:
            request: request of the client.
            outputs: outputs of the stages, for the requests of `request_at`.
            only: index of the only stage that is run; None: all stages are run.

        Raises:
            MessageError: a requested output is missing, or two have the same name.
        """
        _, last = self.ends(only)
        if len(last) == 1:  # it was asked for these outputs alone
            return outputs[last[0]]
        tensors = [tensor for stage in last for tensor in outputs[stage]]
        names = {tensor.name for tensor in tensors}
        if len(names) < len(tensors):
            stages = ", ".join(quoted(self._names[stage]) for stage in last)
            raise MessageError(
                f"two of the last stages, {stages}, have an output of the same name; rename one "
                "at its model server",
                502,
            )
        if not request.outputs:
            return tensors
        return select(tensors, [output.name for output in request.outputs], "the workflow")
