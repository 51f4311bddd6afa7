"""Backend of clients' calls: served here, or forwarded to the replica that owns their shard."""

import asyncio
from asyncio import Future, Timeout
from collections.abc import Callable
from typing import Any

from scheduler.gateway.calls import Backend, CallError, CallMovedError, InferAnswer, InferCall
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.replicas.owned_shards import OwnedShards
from scheduler.gateway.replicas.peers import Peer, Peers
from scheduler.gateway.replicas.shard_gate import ShardGate
from scheduler.gateway.replicas.shards import SHARDS, shard_of

_MOVED = 421
_GATEWAY_TIMEOUT = 504
_OWNERLESS_S = 10.0  # a call waits no longer for an owner
_GRACE_S = 0.25  # for answers of a former owner that are on their way
_RETRY_S = (0.02, 0.3)  # first and longest pause; a change of the owner ends it


class ReplicatedFront:
    """Holds each call until it is answered, and sends it again when its owner is lost.

    Args:
        runtime: runtime of the shards of this replica.
        owned: runtime of owned shards only.
        gate: gate, which has the workflows of all shards.
        peers: connections to the other replicas.
        owner: returns the name of a shard's owner; empty without an owner.
        on_refused: callback with the status of each call that is given up without an owner.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        runtime: Backend,
        owned: OwnedShards,
        gate: ShardGate,
        peers: Peers,
        owner: Callable[[int], str],
        *,
        on_refused: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self._owned = owned
        self._gate = gate
        self._peers = peers
        self._owner = owner
        self._on_refused = on_refused
        self._changed = [asyncio.Event() for _ in range(SHARDS)]
        self._forwarded: list[set[Timeout]] = [set() for _ in range(SHARDS)]
        self._calls: set[asyncio.Task[InferAnswer]] = set()
        self._loop = asyncio.get_running_loop()
        self.now_ms = runtime.now_ms

    def owner_changed(self, shard: int) -> None:
        """Send the calls of a shard to its new owner."""
        changed, self._changed[shard] = self._changed[shard], asyncio.Event()
        changed.set()
        for timeout in self._forwarded[shard]:
            if not timeout.expired():  # the call is being cut, and looks for its owner then
                timeout.reschedule(self._loop.time() + _GRACE_S)

    async def drain(self, timeout_s: float) -> None:
        """Wait until all forwarded calls are answered."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=timeout_s)

    # -- calls ---------------------------------------------------------------------------------

    def check(self, namespace: str, workflow: str, stage: str | None, body_bytes: int) -> None:
        """Check a call before its body is read; see `scheduler.gateway.calls.Backend`."""
        if self._owned.serves(namespace):
            self._owned.check(namespace, workflow, stage, body_bytes)
        elif not self._runtime.ready():
            raise CallError(503, "the gateway is shutting down; send the request again", 0.0)
        # Otherwise its owner checks it.

    def submit(self, call: InferCall) -> "Future[InferAnswer]":
        """Start a call; see `scheduler.gateway.calls.Backend`."""
        task = self._loop.create_task(self._routed(call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _routed(self, call: InferCall) -> InferAnswer:
        shard = shard_of(call.namespace)
        pause_s, longest_s = _RETRY_S
        give_up_s = self._loop.time() + _OWNERLESS_S
        while True:
            changed = self._changed[shard]
            begin_s = self._loop.time()
            try:
                if self._owned.serves(call.namespace):
                    return await self._owned.submit(call)
                peer = self._peers.peer(self._owner(shard))
                if peer is not None:
                    return await self._sent(peer, call, shard)
            except CallMovedError:
                pass
            now_s = self._loop.time()
            give_up_s += now_s - begin_s  # until now it had an owner
            try:
                self._check_time(call, now_s, give_up_s)
            except CallError as error:
                self._on_refused(error.status)
                raise
            try:
                async with asyncio.timeout(pause_s):
                    await changed.wait()
            except TimeoutError:
                pause_s = min(2 * pause_s, longest_s)

    async def _sent(self, peer: Peer, call: InferCall, shard: int) -> InferAnswer:
        """Forward a call.

        Raises:
            CallMovedError: it has to go to another owner.
            CallError, MessageError: it has no answer.
        """
        timeout = asyncio.timeout(None)
        try:
            async with timeout:
                self._forwarded[shard].add(timeout)
                try:
                    return await peer.forward(call, self.now_ms())
                finally:
                    self._forwarded[shard].discard(timeout)
        except TimeoutError:
            raise CallMovedError from None
        except ModelServerError as error:
            if error.retryable:
                raise CallMovedError from None
            raise CallError(error.status, str(error)) from None
        except CallError as error:
            if error.status == _MOVED:
                raise CallMovedError from None
            raise

    def _check_time(self, call: InferCall, now_s: float, give_up_s: float) -> None:
        if call.timeout_ms is not None and 1000 * now_s >= call.arrival_ms + call.timeout_ms:
            raise CallError(
                _GATEWAY_TIMEOUT,
                f"no answer within the request's limit of {call.timeout_ms:.0f} ms; allow more "
                "time, or send fewer requests",
            )
        if now_s >= give_up_s:
            raise CallError(
                503,
                f"no replica of the gateway has served namespace {call.namespace} for "
                f"{_OWNERLESS_S:.0f} s; check that they can reach the API server, and send the "
                "request again",
                1.0,
            )

    # -- states --------------------------------------------------------------------------------

    def ready(
        self, namespace: str | None = None, workflow: str | None = None, stage: str | None = None
    ) -> bool:
        """Return true if it answers calls; see `scheduler.gateway.calls.Backend`."""
        if namespace is None or workflow is None:
            return self._runtime.ready()
        if self._owned.serves(namespace):
            return self._runtime.ready(namespace, workflow, stage)
        return self._gate.has_pods(namespace, workflow, stage)

    async def metadata(self, namespace: str, workflow: str, stage: str | None) -> dict[str, Any]:
        """Return the metadata of a workflow; see `scheduler.gateway.calls.Backend`."""
        if self._owned.serves(namespace):
            return await self._runtime.metadata(namespace, workflow, stage)
        peer = self._peers.peer(self._owner(shard_of(namespace)))
        if peer is None:
            raise CallError(503, f"no replica of the gateway serves namespace {namespace}", 1.0)
        try:
            return await peer.metadata(namespace, workflow, stage)
        except ModelServerError as error:
            raise CallError(error.status, str(error), 1.0) from None
