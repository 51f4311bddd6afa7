"""Access by Kubernetes tokens: a caller needs the right ``create`` on a Workflow's ``infer``.

The API server decides, by a review of the token and one of the right. Its answers are kept for a
while, as its own authentication of a webhook's tokens is. Without an answer nobody new is let in.
"""

import asyncio
import time
from asyncio import Task
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from scheduler.cluster.access_reviews import Access, TokenIssuer
from scheduler.cluster.errors import ClusterError
from scheduler.gateway.calls import Backend, CallError, InferAnswer, InferCall
from scheduler.model.message_text import quoted
from scheduler.model.names import GROUP

ALLOWED_S = 60.0
REFUSED_S = 10.0
VERDICTS_MAX = 10_000  # of each kind
REVIEWS_MAX = 64  # at a time
SOURCE_REVIEWS_MAX = 8  # at a time for callers with one IP address
TOKEN_BYTES_MAX = 16 * 1024
_SCHEME = b"bearer "
_User = dict[str, Any]
_ValueT = TypeVar("_ValueT")


class Reviews(Protocol):
    """Reviews of tokens and rights, as `scheduler.cluster.access_reviews.AccessReviews`."""

    async def issuer(self) -> TokenIssuer:
        """Return the issuer of service account tokens."""

    async def user(self, token: str) -> _User | None:
        """Return the user of a token; None: it is not valid."""

    async def allows(self, user: _User, access: Access) -> bool:
        """Return true if a user has a right."""


class CallRefusal(NamedTuple):
    """Status and text of a call that may not be made; see `CallError`."""

    status: int
    message: str
    retry_after_s: float | None = None


class _Subject(NamedTuple):
    """Subject of a verdict: a token, or its right to a workflow."""

    digest: bytes
    namespace: str = ""
    workflow: str = ""


class _Verdicts(Generic[_ValueT]):
    """Answers of one kind, each until its own time; the oldest ones are forgotten first."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._by_subject: OrderedDict[_Subject, tuple[float, _ValueT]] = OrderedDict()

    def get(self, subject: _Subject) -> tuple[float, _ValueT] | None:
        """Return the end of an answer and its value; None: there is none any more."""
        verdict = self._by_subject.get(subject)
        if verdict is None or verdict[0] <= self._clock_s():
            return None
        self._by_subject.move_to_end(subject)
        return verdict

    def add(self, subject: _Subject, until_s: float, value: _ValueT) -> None:
        """Add an answer."""
        self._by_subject[subject] = until_s, value
        self._by_subject.move_to_end(subject)
        while len(self._by_subject) > VERDICTS_MAX:
            self._by_subject.popitem(last=False)


class TokenAccess:
    """Checks the tokens of calls.

    A check raises the `CallError` of a caller who is refused already, and returns None for one who
    is allowed. For all others it returns a task that ends when the API server has decided, with
    that error or without.

    Args:
        reviews: connection to the API server.
        prefilter: raises a `CallError` for a token that no review can accept.
        on_refused: callback that gets the status of each call that is refused.
        clock_s: monotonic seconds.
    """

    def __init__(
        self,
        reviews: Reviews,
        *,
        prefilter: Callable[[str], None] = lambda _: None,
        on_refused: Callable[[int], None] = lambda _: None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviews = reviews
        self._prefilter = prefilter
        self._on_refused = on_refused
        self._clock_s = clock_s
        # Apart, so that no number of refusals makes the gateway forget who is allowed.
        self._users: _Verdicts[_User] = _Verdicts(clock_s)
        self._rights: _Verdicts[None] = _Verdicts(clock_s)
        self._refusals: _Verdicts[CallRefusal] = _Verdicts(clock_s)
        self._running: dict[_Subject, Task[CallRefusal | None]] = {}
        self._source_reviews: Counter[str] = Counter()

    def check_token(self, authorization: bytes, source: str) -> "Task[None] | None":
        """Check that a call has a valid token.

        Args:
            authorization: value of the header; empty without a header.
            source: IP address of the caller.

        Raises:
            CallError: 401: the token is refused. 429: too many reviews are running.
        """
        return self.check(authorization, "", "", source)

    def check(
        self, authorization: bytes, namespace: str, workflow: str, source: str
    ) -> "Task[None] | None":
        """Check that a call has a token with the right to a workflow.

        Args:
            authorization: value of the header; empty without a header.
            namespace: namespace of the workflow.
            workflow: name of the workflow.
            source: IP address of the caller.

        Raises:
            CallError: 401, 403: the call is refused. 429: too many reviews are running.
        """
        try:
            review = self._check(authorization, namespace, workflow, source)
        except CallError as error:
            self._on_refused(error.status)
            raise
        if review is None:
            return None
        waiting = asyncio.create_task(self._wait(review))
        waiting.add_done_callback(_retrieve)
        return waiting

    def _check(
        self, authorization: bytes, namespace: str, workflow: str, source: str
    ) -> "Task[CallRefusal | None] | None":
        token = _token(authorization)
        caller = _Subject(sha256(token.encode()).digest())
        subject = caller._replace(namespace=namespace, workflow=workflow)
        allowed: _Verdicts[Any] = self._users if subject == caller else self._rights
        if allowed.get(subject) is not None:
            return None
        refusal = self._refusals.get(caller) or self._refusals.get(subject)
        if refusal is not None:
            raise CallError(*refusal[1])
        review = self._running.get(subject)
        if review is None:
            self._prefilter(token)
            review = self._start(subject, source, self._review(subject, token))
        return review

    def _start(
        self, subject: _Subject, source: str, review: Coroutine[Any, Any, CallRefusal | None]
    ) -> "Task[CallRefusal | None]":
        if len(self._running) >= REVIEWS_MAX or self._source_reviews[source] >= SOURCE_REVIEWS_MAX:
            review.close()
            raise CallError(429, "too many tokens are being checked; send the request again", 1.0)
        task = self._running[subject] = asyncio.create_task(review)
        self._source_reviews[source] += 1
        task.add_done_callback(lambda _: self._end(subject, source))
        return task

    def _end(self, subject: _Subject, source: str) -> None:
        del self._running[subject]
        self._source_reviews[source] -= 1
        if not self._source_reviews[source]:
            del self._source_reviews[source]

    async def _wait(self, review: "Task[CallRefusal | None]") -> None:
        # A caller that hangs up must not end the review of the others.
        refusal = await asyncio.shield(review)
        if refusal is not None:
            self._on_refused(refusal.status)
            raise CallError(*refusal)

    async def _review(self, subject: _Subject, token: str) -> CallRefusal | None:
        """Ask the API server, keep its answer, and return why the call is refused."""
        try:
            if subject.workflow:
                return await self._review_right(subject, token)
            return (await self._user(subject, token))[2]
        except ClusterError as error:
            return CallRefusal(503, f"the API server does not say who may call: {error}", 1.0)

    async def _review_right(self, subject: _Subject, token: str) -> CallRefusal | None:
        until_s, user, refusal = await self._user(_Subject(subject.digest), token)
        if refusal is not None:
            return refusal
        _, namespace, workflow = subject
        access = Access(namespace, "create", GROUP, "workflows/infer", workflow)
        if await self._reviews.allows(user, access):
            self._rights.add(subject, until_s, None)
            return None
        refusal = CallRefusal(
            403,
            f"user {quoted(user['username'])} may not create workflows/infer of group "
            f"{GROUP} with name {quoted(workflow)} in namespace {quoted(namespace)}; "
            "give it a Role",
        )
        self._refusals.add(subject, self._clock_s() + REFUSED_S, refusal)
        return refusal

    async def _user(self, caller: _Subject, token: str) -> tuple[float, _User, CallRefusal | None]:
        """Return the end of the answer about a token, its user, and why it is refused."""
        verdict = self._users.get(caller)
        if verdict is not None:
            return *verdict, None
        user = await self._reviews.user(token)
        if user is None:
            refusal = CallRefusal(401, "the token is not valid for this cluster; get another one")
            self._refusals.add(caller, self._clock_s() + REFUSED_S, refusal)
            return 0.0, {}, refusal
        until_s = self._clock_s() + ALLOWED_S
        self._users.add(caller, until_s, user)
        return until_s, user, None


async def submit_after(review: "Task[None]", backend: Backend, call: InferCall) -> InferAnswer:
    """Run a call when the review of its caller has ended; raises the error of either."""
    await review
    return await backend.submit(call)


def _retrieve(review: "Task[None]") -> None:
    """Mark the error of a review as seen: the call may be gone."""
    if not review.cancelled():
        review.exception()


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
