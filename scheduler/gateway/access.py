"""Access by Kubernetes tokens: a caller needs the right ``create`` on a Workflow's ``infer``.

The API server decides, by a review of the token and one of the right. Its answers are kept for a
while, as its own authentication of a webhook's tokens is. Without an answer nobody new is let in.
"""

import asyncio
import time
from asyncio import Future
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from scheduler.cluster.access_reviews import Access
from scheduler.cluster.errors import ClusterError
from scheduler.gateway.calls import Backend, CallError, InferAnswer, InferCall
from scheduler.model.message_text import quoted
from scheduler.model.names import GROUP

ALLOWED_S = 60.0
REFUSED_S = 10.0
VERDICTS_MAX = 10_000
REVIEWS_MAX = 64  # at a time
TOKEN_BYTES_MAX = 16 * 1024
_SCHEME = b"bearer "
_Key = tuple[bytes, str, str]  # digest of the token, namespace, workflow


class Reviews(Protocol):
    """Reviews of tokens and rights, as `scheduler.cluster.access_reviews.AccessReviews`."""

    async def user(self, token: str) -> dict[str, Any] | None:
        """Return the user of a token; None: it is not valid."""

    async def allows(self, user: dict[str, Any], access: Access) -> bool:
        """Return true if a user has a right."""


class _Verdict(NamedTuple):
    until_s: float
    refusal: tuple[int, str] | None


class TokenAccess:
    """Checks the tokens of calls.

    Args:
        reviews: connection to the API server.
        on_refused: callback that gets the status of each call that is refused.
        clock_s: monotonic seconds.
    """

    def __init__(
        self,
        reviews: Reviews,
        *,
        on_refused: Callable[[int], None] = lambda _: None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviews = reviews
        self._on_refused = on_refused
        self._clock_s = clock_s
        self._verdicts: OrderedDict[_Key, _Verdict] = OrderedDict()
        self._running: dict[_Key, asyncio.Task[_Verdict]] = {}

    def check(self, authorization: bytes, namespace: str, workflow: str) -> bool:
        """Check a call before its body is read; return false if a review has to decide.

        Args:
            authorization: value of the header; empty without a header.
            namespace: namespace of the workflow.
            workflow: name of the workflow.

        Raises:
            CallError: 401, 403: it is refused. 429: too many reviews are running.
        """
        try:
            return self._check(authorization, namespace, workflow)
        except CallError as error:
            self._on_refused(error.status)
            raise

    def _check(self, authorization: bytes, namespace: str, workflow: str) -> bool:
        key = _digest(_token(authorization)), namespace, workflow
        verdict = self._verdicts.get(key)
        if verdict is None or verdict.until_s <= self._clock_s():
            if len(self._running) >= REVIEWS_MAX and key not in self._running:
                raise CallError(
                    429, "too many tokens are being checked; send the request again", 1.0
                )
            return False
        if verdict.refusal is not None:
            raise CallError(*verdict.refusal)
        self._verdicts.move_to_end(key)
        return True

    def submit(self, backend: Backend, call: InferCall) -> "Future[InferAnswer]":
        """Run a call whose token has the right; raises as `check`, or the future does."""
        if self.check(call.authorization, call.namespace, call.workflow):
            return backend.submit(call)
        return asyncio.ensure_future(self._reviewed(backend, call))

    async def _reviewed(self, backend: Backend, call: InferCall) -> InferAnswer:
        try:
            await self._wait_for_review(call)
        except CallError as error:
            self._on_refused(error.status)
            raise
        return await backend.submit(call)

    async def _wait_for_review(self, call: InferCall) -> None:
        token = _token(call.authorization)
        key = _digest(token), call.namespace, call.workflow
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._review(key, token))
            task.add_done_callback(lambda _: self._running.pop(key, None))
        try:
            # A caller that hangs up must not end the review of the others.
            verdict = await asyncio.shield(task)
        except ClusterError as error:
            raise CallError(
                503, f"the API server does not say who may call: {error}", 1.0
            ) from None
        if verdict.refusal is not None:
            raise CallError(*verdict.refusal)

    async def _review(self, key: _Key, token: str) -> _Verdict:
        _, namespace, workflow = key
        refusal: tuple[int, str] | None = None
        user = await self._reviews.user(token)
        if user is None:
            refusal = 401, "the token is not valid for this cluster; get another one"
        else:
            access = Access(namespace, "create", GROUP, "workflows/infer", workflow)
            if not await self._reviews.allows(user, access):
                text = (
                    f"user {quoted(user['username'])} may not create workflows/infer of group "
                    f"{GROUP} with name {quoted(workflow)} in namespace {quoted(namespace)}; "
                    "give it a Role"
                )
                refusal = 403, text
        until_s = self._clock_s() + (ALLOWED_S if refusal is None else REFUSED_S)
        verdict = self._verdicts[key] = _Verdict(until_s, refusal)
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > VERDICTS_MAX:
            self._verdicts.popitem(last=False)
        return verdict


def _token(authorization: bytes) -> str:
    """Return the token of the header ``Authorization``; raises `CallError`."""
    scheme, token = authorization[: len(_SCHEME)], authorization[len(_SCHEME) :].strip()
    if scheme.lower() != _SCHEME or not token or not token.isascii():
        raise CallError(
            401, "there is no token; send a Kubernetes token as Authorization: Bearer TOKEN"
        )
    if len(token) > TOKEN_BYTES_MAX:
        raise CallError(401, f"the token has more than {TOKEN_BYTES_MAX:,} bytes")
    return token.decode()


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
