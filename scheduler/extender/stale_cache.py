"""A second look before a pod is refused everywhere: kube-scheduler may have heard more than we.

Both follow the API server by watches of their own. When room comes, kube-scheduler tries a waiting
pod again within a millisecond, and asks us, who may hear of the room a few milliseconds later. If
that try is refused, the next one comes only with the next event: where the cluster is quiet, five
minutes later (its podMaxInUnschedulablePodsDuration). So a refusal is given only on a picture that
is at least as new as the question:

- The pod in the question has a resourceVersion. Until ours has reached it, we are behind.
- A pod that is as it was at its last refusal, asked about again though nothing was heard of that
  could have made room, was woken by something that we have not heard of. If that does not come
  soon, the answer is an error and not a refusal: after an error kube-scheduler tries again by
  itself, after its back-off of a second or more.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from scheduler.extender.pods import version_of
from scheduler.extender.scheduling import FilterAnswer, RefusedError, Scheduler
from scheduler.extender.state import State

# The longest that an answer is held back, in seconds: kube-scheduler does nothing else meanwhile.
BEHIND_S = 0.5
UNEXPLAINED_S = 0.05
_PAUSE_S = 0.002
_REMEMBERED_BESIDE_WAITING = 1_000


class RefusalGuard:
    """Remembers at which state each waiting pod was refused."""

    def __init__(self, state: State, decider: Scheduler) -> None:
        self._state = state
        self._decider = decider
        self._refused_at: dict[str, tuple[int, int]] = {}
        self._waited_at = -1  # the state at which an answer was held back for more news

    async def answer(
        self, raw: Mapping[str, Any], names: list[str], first: FilterAnswer
    ) -> FilterAnswer:
        """The answer to give in place of ``first``, which refuses all of ``names``.

        Raises:
            RefusedError: what kube-scheduler knows has not been heard of; it is to ask again.
        """
        state = self._state
        version = version_of(raw)
        if version == 0:  # not from an API server
            return first
        answer = first
        if state.pods.version < version:
            if not await _soon(lambda: state.pods.version >= version, BEHIND_S):
                raise RefusedError("the extender has not heard of the pod's last change yet")
            answer = self._decider.filter(raw, names)
        uid = (raw.get("metadata") or {}).get("uid") or ""
        if not answer.passing and self._refused_at.get(uid) == (
            state.ledger.free_capacity_epoch,
            version,
        ):
            answer = await self._unexplained(raw, names, answer)
        if not answer.passing:
            self._refused_at[uid] = (state.ledger.free_capacity_epoch, version)
            self._forget_others()
        return answer

    async def _unexplained(
        self, raw: Mapping[str, Any], names: list[str], answer: FilterAnswer
    ) -> FilterAnswer:
        """The pod was asked about again, and nothing that was heard of is the reason."""
        ledger = self._state.ledger
        before = ledger.free_capacity_epoch
        if self._waited_at != before:  # once: not for each of a thousand pods that were woken
            self._waited_at = before
            await _soon(lambda: ledger.free_capacity_epoch != before, UNEXPLAINED_S)
        if ledger.free_capacity_epoch != before:
            return self._decider.filter(raw, names)
        if (raw.get("status") or {}).get("nominatedNodeName"):
            return answer  # it waits for its victims, and an error would take its claim away
        self._refused_at.pop((raw.get("metadata") or {}).get("uid") or "", None)
        reason = next(iter(answer.refused.values())).reason
        raise RefusedError(
            f"no node has room as far as the extender has heard, and it is asked again: {reason}"
        )

    def _forget_others(self) -> None:
        waiting = self._state.waiting
        if len(self._refused_at) > 2 * len(waiting) + _REMEMBERED_BESIDE_WAITING:
            self._refused_at = {u: at for u, at in self._refused_at.items() if u in waiting}


async def _soon(is_so: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_PAUSE_S)
    return True
