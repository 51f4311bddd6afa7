"""A workflow that calls can name."""

from collections.abc import Hashable, Mapping

from scheduler.dispatch.pods import FunctionKey
from scheduler.gateway.calls import CallError
from scheduler.gateway.serving.data_flow import DataFlow
from scheduler.model.documents import Workflow
from scheduler.model.message_text import listed
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.model_signature import ModelSignature, check_request


class ServedWorkflow:
    """A workflow, its stages' functions, and the way of tensors through them.

    Attributes:
        key: namespace and name of the workflow.
        slo_ms: latency that a call may take.
        flow: path of tensors between the workflow's stages.
        names, functions: names and functions of the workflow's stages.
    """

    __slots__ = ("_accepted", "flow", "functions", "key", "names", "slo_ms")

    def __init__(self, workflow: Workflow) -> None:
        self._accepted: tuple[Hashable, int | None, Mapping[FunctionKey, ModelSignature]] = (
            None,
            None,
            {},
        )
        self.key = workflow.key
        self.slo_ms = workflow.spec.slo.latency_ms
        self.flow = DataFlow(workflow)
        stages = workflow.spec.stages
        self.names = [stage.name for stage in stages]
        self.functions: list[FunctionKey] = [(self.key[0], stage.function) for stage in stages]

    def index(self, stage: str | None) -> int | None:
        """Return the index of a stage; None for the whole workflow.

        Raises:
            CallError: 404; there is no such stage.
        """
        if stage is None:
            return None
        if stage not in self.names:
            raise CallError(
                404,
                f"workflow {'/'.join(self.key)} has no stage {stage}; it has {listed(self.names)}",
            )
        return self.names.index(stage)

    def check(
        self,
        request: InferRequest,
        only: int | None,
        signatures: Mapping[FunctionKey, ModelSignature],
    ) -> None:
        """Compare a request with the models of the stages that take its inputs, and the last ones.

        Args:
            request: request of the client.
            only: index of the only stage that is run; None: all stages are run.
            signatures: inputs and outputs of the functions' models, as far as they are known; it
                does not change.

        Raises:
            MessageError: the models take no such request.
        """
        form, stage, known_signatures = self._accepted
        # Requests with the same header share their form.
        if request.joinable is form and signatures is known_signatures and only == stage:
            return
        first, last = self.flow.ends(only)
        functions, names = self.functions, self.names
        check_request(
            request,
            [(names[stage], signatures.get(functions[stage])) for stage in first],
            [(names[stage], signatures.get(functions[stage])) for stage in last]
            if request.outputs
            else (),
        )
        self._accepted = request.joinable, only, signatures

    def called(self, stage: str | None) -> list[FunctionKey]:
        """Return the functions that a call needs; raises like `index`."""
        only = self.index(stage)
        return self.functions if only is None else [self.functions[only]]
