"""Workflows by name: what a client may call, and what answers to it.

It answers for the path of a request, with the HTTP status of a name that is not known. The plans of
these workflows are the dispatcher's, in `scheduler.dispatch.namespace_plans`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.requests import WorkflowKey
from scheduler.gateway.calls import MODEL_VERSION, CallError
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.serving.connected_pods import ConnectedPods
from scheduler.gateway.serving.served_workflow import ServedWorkflow
from scheduler.model.message_text import listed

ColdStartRefusal = Callable[[FunctionKey], str | None]


def no_cold_starts(function: FunctionKey) -> str:
    """Refuse to wait for a pod of any function."""
    return f"check the pods that the FunctionServer of {function[1]} selects"


def no_pod_error(namespace: str, unserved: Mapping[str, str]) -> CallError:
    """Return the error of a call that needs functions without a pod, each with the reason."""
    why = next(iter(unserved.values()))
    message = f"no pod of {listed(list(unserved))} is ready in namespace {namespace}: {why}"
    return CallError(503, message)


class WorkflowDirectory:
    """All workflows, and the pods that serve their functions.

    Attributes:
        cold_start_refusal: returns the reason why a call cannot wait for a pod of a function to
            start, or None.
    """

    def __init__(self, pods: ConnectedPods) -> None:
        self._pods = pods
        self.cold_start_refusal: ColdStartRefusal = no_cold_starts
        self._workflows: dict[WorkflowKey, ServedWorkflow] = {}

    def add(self, workflow: ServedWorkflow) -> None:
        """Add or replace a workflow."""
        self._workflows[workflow.key] = workflow

    def remove(self, key: WorkflowKey) -> bool:
        """Remove a workflow; return false if it is not known."""
        return self._workflows.pop(key, None) is not None

    def get(self, key: WorkflowKey) -> ServedWorkflow | None:
        """Return a workflow, or None if it is not known."""
        return self._workflows.get(key)

    def workflow(self, namespace: str, name: str) -> ServedWorkflow:
        """Return a workflow.

        Raises:
            CallError: 404; it is not known.
        """
        workflow = self._workflows.get((namespace, name))
        if workflow is None:
            names = listed(sorted(key[1] for key in self._workflows if key[0] == namespace))
            raise CallError(
                404,
                f"workflow {name} is not known in namespace {namespace}, which has: {names}; "
                "create the Workflow, or correct the path",
            )
        return workflow

    def unserved(self, namespace: str, name: str, stage: str | None) -> dict[str, str]:
        """Return functions of a workflow, or of one stage, without pods; and why no pod starts.

        A function without a pod is served if a call can wait for one to start.

        Raises:
            CallError: 404; the workflow or its stage is not known.
        """
        functions = sorted(set(self.workflow(namespace, name).called(stage)))
        reasons = {function[1]: self.why_unserved(function) for function in functions}
        return {function: why for function, why in reasons.items() if why is not None}

    def why_unserved(self, function: FunctionKey) -> str | None:
        """Return why no pod of a function is ready; None: one is, or a call can wait for one."""
        if self._pods.ready(function) is not None:
            return None
        why = self.cold_start_refusal(function)
        return why and (self._why_not_ready(function) or why)

    def _why_not_ready(self, function: FunctionKey) -> str:
        names = self._pods.unreachable(function)
        verb = "refuses" if len(names) == 1 else "refuse"
        return f"{listed(names)} {verb} connections; see the log of the server" if names else ""

    def check_pods(self, namespace: str, name: str, stage: str | None) -> None:
        """Check that a workflow, or one stage, is known and has a pod for each function.

        Raises:
            CallError: 404 or 503.
        """
        for function in self.workflow(namespace, name).called(stage):
            if self._pods.ready(function) is None:
                break
        else:
            return
        unserved = self.unserved(namespace, name, stage)
        if unserved:
            raise no_pod_error(namespace, unserved)

    async def metadata(self, namespace: str, name: str, stage: str | None) -> dict[str, Any]:
        """Return the protocol's metadata: inputs of the first stages, outputs of the last ones.

        Raises:
            CallError: the workflow or stage is unknown, or no model server answers.
        """
        workflow = self.workflow(namespace, name)
        first, last = workflow.flow.ends(workflow.index(stage))
        described = {
            index: await self._described(workflow.functions[index]) for index in {*first, *last}
        }
        inputs = {  # stages that take the same input share it
            tensor["name"]: tensor for i in first for tensor in described[i].get("inputs", [])
        }
        return {
            "name": name if stage is None else f"{name}/stages/{stage}",
            "versions": [MODEL_VERSION],
            "platform": "esg",
            "inputs": [*inputs.values()],
            "outputs": [tensor for i in last for tensor in described[i].get("outputs", [])],
        }

    async def _described(self, function: FunctionKey) -> dict[str, Any]:
        connected = self._pods.ready(function)
        if connected is None:
            raise CallError(503, f"no pod of {function[1]} is ready")
        try:
            return await connected.server.metadata(connected.model)
        except ModelServerError as error:
            raise CallError(error.status, connected.without_address(error)) from error
