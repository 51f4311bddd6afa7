"""Calls of a policy about a queue, timed, with its errors named."""

from collections.abc import Sequence
from time import perf_counter

from scheduler.model.plan import Candidate
from workbench.simulation.errors import PolicyError
from workbench.simulation.events import RETRY, EventQueue
from workbench.simulation.policy import Policy, SchedulingRequest
from workbench.simulation.workflow_state import StageQueue


class PolicyCalls:
    """Asks a policy for candidates, and for the time of a retry.

    Attributes:
        request: request that the caller fills before each call.
        number, wall_s: number and wall time of all calls for candidates.
    """

    def __init__(self, policy: Policy, events: EventQueue) -> None:
        self._policy = policy
        self._events = events
        self.request = SchedulingRequest(("", "", ""), 0.0, 0, 0.0, 0.0, 0, (), 1.0)
        self.number = 0
        self.wall_s = 0.0

    def candidates(self, queue: StageQueue) -> Sequence[Candidate]:
        """Return the policy's candidates; without any, set its retry time."""
        request = self.request
        self.number += 1
        began = perf_counter()
        try:
            candidates = self._policy.candidates(request)
            if not candidates:
                self._retry_at(queue, self._policy.retry_at_ms(request))
        except Exception as error:
            raise self._error(error) from error
        self.wall_s += perf_counter() - began
        return candidates

    def retry_when_due(self, queue: StageQueue) -> None:
        """Set a retry time when all containers that the policy named are busy."""
        try:
            time_ms = self._policy.retry_at_ms(self.request)
        except Exception as error:
            raise self._error(error) from error
        if time_ms > self.request.now_ms:
            self._retry_at(queue, time_ms)

    def _retry_at(self, queue: StageQueue, time_ms: float) -> None:
        if not time_ms > self.request.now_ms:
            raise ValueError(
                f"retry_at_ms is {time_ms}, which is past; return a later time, or inf"
            )
        if time_ms < queue.retry_at_ms:
            queue.retry_at_ms = time_ms
            self._events.push(time_ms, RETRY, queue)

    def _error(self, error: Exception) -> PolicyError:
        return PolicyError.of(self._policy.name, self.request.key, self.request.now_ms, error)
