"""Calls in queues that no pod serves: late ones are refused after a while, as new ones are."""

from typing import Final

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import FunctionKey
from scheduler.gateway.serving.served_call import ServedCall
from scheduler.gateway.serving.workflow_directory import WorkflowDirectory, no_pod_error

UNSERVED_MS: Final = 60_000.0
"""Time without a pod: most containers are restarted in less, and load their model."""


class UnservedCalls:
    """Refuses late calls of functions that have had no pod for `UNSERVED_MS`, and get none.

    Without it they would wait until their clients give up: `onLate` serves a late call on a pod.

    Args:
        dispatcher: dispatcher whose payloads are a `ServedCall` for each request.
        workflows: what is known of the pods of functions.
    """

    def __init__(self, dispatcher: Dispatcher, workflows: WorkflowDirectory) -> None:
        self._dispatcher = dispatcher
        self._workflows = workflows
        self._since_ms: dict[FunctionKey, float] = {}

    def refuse(self, now_ms: float) -> None:
        """Refuse those whose time is over; call it every few seconds."""
        functions = [f for f in self._dispatcher.functions.values() if f.rows]
        reasons = {function: self._workflows.why_unserved(function.key) for function in functions}
        unserved = {function: why for function, why in reasons.items() if why is not None}
        self._since_ms = {f.key: self._since_ms.get(f.key, now_ms) for f in unserved}
        for function, why in unserved.items():
            if now_ms - self._since_ms[function.key] < UNSERVED_MS:
                continue
            namespace, name = function.key
            for queue in function.queues:
                for job in (*queue.jobs, *queue.late.jobs):
                    if job.deadline_ms <= now_ms:
                        call: ServedCall = job.request.payload
                        call.fail(no_pod_error(namespace, {name: why}))
