"""Conditions by a namespace's owner: Ready of Workflows, and those of FunctionServers (ADR 46).

A stage is served if a pod of its function is ready, or its template starts pods on demand: a call
then waits for one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scheduler.cluster.resource import FUNCTION_SERVERS, WORKFLOWS
from scheduler.cluster.status_writer import DesiredStatus
from scheduler.dispatch.pods import FunctionKey
from scheduler.gateway.discovery.documents import ServedDocuments
from scheduler.gateway.discovery.function_servers import Discovery
from scheduler.gateway.serving.workflow_directory import ColdStartRefusal
from scheduler.model.function_server import FunctionServer
from scheduler.model.status import (
    ACCEPTED,
    ConditionState,
    ObservedDocument,
    rejected,
    shortened,
)

PERIOD_S = 1.0  # between two comparisons of all documents
START_FAILED = "PodStartFailed"
_SERVED = ConditionState(
    "True", "Served", "every stage has a ready pod, or a template that starts one on demand"
)
_ON_DEMAND = ConditionState(
    "True", "StartsOnDemand", "its template starts a pod at the next request"
)
_STARTING = ConditionState("False", "PodsStarting", "no pod of its template is ready yet")
_UNUSED = ConditionState(
    "False",
    "Unused",
    "no Workflow that can be served has a stage of its function; create one: the share of the "
    "template's pods follows from its SLO",
)


class ServingConditions:
    """Computes the statuses of what a gateway knows.

    Args:
        documents: Workflows and profiles.
        discovery: FunctionServers and their pods.
        is_owner: returns true if this process writes the statuses of a namespace now.
        pods_wanted: returns the pods that a function needs, for its server and ready pods.
        refusal: returns the reason why no pod of a template starts, or None; None: the gateway
            creates no pods.
        group: group of this gateway; empty: none.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        documents: ServedDocuments,
        discovery: Discovery,
        *,
        is_owner: Callable[[str], bool],
        pods_wanted: Callable[[FunctionServer, int], int],
        refusal: ColdStartRefusal | None,
        group: str = "",
    ) -> None:
        self._documents = documents
        self._discovery = discovery
        self._is_owner = is_owner
        self._pods_wanted = pods_wanted
        self._where = f" in the gateway group {group}" if group else ""
        self._refusal = refusal

    def statuses(self) -> Iterator[DesiredStatus]:
        """Yield the statuses of the namespaces that this process owns, each when it is needed.

        Documents that come or go meanwhile are left to the next call.
        """
        pods = Counter(p.function for p in self._discovery.known_pods() if not p.draining)
        ready = Counter(p.function for p in self._discovery.known_pods() if p.state == "ready")
        states = {s.function_key: self._served(s, ready) for s in self._discovery.in_use()}
        for key, observed in self._owned(self._documents.store.workflows.observed):
            if (state := self._workflow_ready(key, states)) is not None:
                yield DesiredStatus(
                    resource=WORKFLOWS,
                    namespace=key[0],
                    name=key[1],
                    observed=observed,
                    conditions={"Ready": state},
                    fields={"pods": self._ready_pods(key, ready)},
                )
        for key, observed in self._owned(self._discovery.servers.observed):
            if conditions := self._server_conditions(key, states):
                numbers = self._numbers(key, pods, ready)
                yield DesiredStatus(
                    resource=FUNCTION_SERVERS,
                    namespace=key[0],
                    name=key[1],
                    observed=observed,
                    conditions=conditions,
                    fields=numbers | {"observedGeneration": observed.generation},
                )

    def _owned(
        self, documents: Mapping[tuple[str, str], ObservedDocument]
    ) -> Iterator[tuple[tuple[str, str], ObservedDocument]]:
        for key in list(documents):
            if self._is_owner(key[0]) and (observed := documents.get(key)) is not None:
                yield key, observed

    def _workflow_ready(
        self, key: tuple[str, str], states: Mapping[FunctionKey, ConditionState]
    ) -> ConditionState | None:
        if (error := self._documents.store.workflows.errors.get(key)) is not None:
            return rejected(error)
        if (problem := self._documents.problems.get(("Workflow", *key))) is not None:
            return ConditionState("False", "MissingProfile", problem)
        workflow = self._documents.store.workflow(*key)
        if workflow is None:
            return None
        for function in dict.fromkeys(stage.function for stage in workflow.spec.stages):
            state = states.get((key[0], function))
            if state is None:
                text = f"no FunctionServer serves {function}{self._where}"
                return ConditionState("False", "NoFunctionServer", text)
            if state.status != "True":
                text = shortened(f"{function}: {state.message}")
                return ConditionState("False", state.reason, text)
        return _SERVED

    def _ready_pods(self, key: tuple[str, str], ready: Counter[FunctionKey]) -> int:
        workflow = self._documents.store.workflow(*key)
        stages = () if workflow is None else workflow.spec.stages
        return sum(ready[key[0], function] for function in {stage.function for stage in stages})

    def _server_conditions(
        self, key: tuple[str, str], states: Mapping[FunctionKey, ConditionState]
    ) -> dict[str, ConditionState]:
        accepted = self._accepted(key)
        if accepted.status != "True":
            return {"Accepted": accepted, "Ready": accepted}
        server = self._discovery.servers.documents.get(key)
        ready = None if server is None else states.get(server.function_key)
        return {} if ready is None else {"Accepted": accepted, "Ready": ready}

    def _accepted(self, key: tuple[str, str]) -> ConditionState:
        if (error := self._discovery.servers.errors.get(key)) is not None:
            return rejected(error)
        problem = self._discovery.problems.get(("FunctionServer", *key))
        server = self._discovery.servers.documents.get(key)
        if problem is None or server is None:
            return ACCEPTED
        if server.spec.template is not None and self._refusal is None:
            return ConditionState("False", "TemplatesNotAllowed", problem)
        if self._documents.profile(server.spec.function) is None:
            return ConditionState("False", "MissingProfile", problem)
        return ConditionState("False", "FunctionServedTwice", problem)

    def _served(self, server: FunctionServer, ready: Counter[FunctionKey]) -> ConditionState:
        """Return whether calls of a function are answered, now or after a cold start."""
        function = server.function_key
        if ready[function]:
            return ConditionState("True", "PodsReady", "pods are ready")
        if server.spec.template is None or self._refusal is None:
            return ConditionState("False", "NoPods", "no pod that its selector matches is ready")
        if (text := self._refusal(function)) is not None:
            return ConditionState("False", START_FAILED, shortened(text))
        observed = self._discovery.servers.observed[server.key]  # as every document
        before = observed.state("Ready")
        if before is not None and before.reason == START_FAILED and observed.is_current("Ready"):
            return before  # until a pod has started: the next attempt may fail, too
        if not server.spec.pods_min:
            return _ON_DEMAND
        return _STARTING if self._documents.uses(function) else _UNUSED

    def _numbers(
        self, key: tuple[str, str], pods: Counter[FunctionKey], ready: Counter[FunctionKey]
    ) -> dict[str, Any]:
        server = self._discovery.servers.documents.get(key)
        if server is None or ("FunctionServer", *key) in self._discovery.problems:
            return {"replicas": 0, "wantedReplicas": 0}
        function = server.function_key
        return {
            "replicas": pods[function],
            "wantedReplicas": self._pods_wanted(server, ready[function]),
            "selector": server.pod_selector,
        }
