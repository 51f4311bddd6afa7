"""A workflow that calls can name."""

from scheduler.dispatch.pods import FunctionKey
from scheduler.gateway.calls import CallError
from scheduler.gateway.serving.data_flow import DataFlow
from scheduler.model.documents import Workflow
from scheduler.model.message_text import listed


class ServedWorkflow:
    """A workflow, its stages' functions, and the way of tensors through them.

    Attributes:
        key: namespace and name of the workflow.
        slo_ms: latency that a call may take.
        flow: path of tensors between the workflow's stages.
        names, functions: names and functions of the workflow's stages.
    """

    __slots__ = ("flow", "functions", "key", "names", "slo_ms")

    def __init__(self, workflow: Workflow) -> None:
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

    def called(self, stage: str | None) -> list[FunctionKey]:
        """Return the functions that a call needs; raises like `index`."""
        only = self.index(stage)
        return self.functions if only is None else [self.functions[only]]
