"""Access by Kubernetes tokens: who is let in, what is asked of the API server, and how often."""

import asyncio

import pytest

from scheduler.cluster.access_reviews import Access
from scheduler.cluster.errors import NoAnswerError
from scheduler.gateway import access as module
from scheduler.gateway.access import ALLOWED_S, REFUSED_S, SOURCE_REVIEWS_MAX, TokenAccess
from tests.gateway.harness import connection, eventually, gateway, read_answer, request_bytes
from tests.gateway.messages import HEADER, INFER, error_of, infer_body, rows_of
from tests.gateway.test_grpc_front import InferenceServerException, chain, tensors

RIGHT = Access("default", "create", "esg-scheduler.io", "workflows/infer", "double")


class Reviews:
    """An API server that knows users by token, and rights by user.

    Attributes:
        reviewed: tokens and rights, in order.
        refused: statuses of the calls that were refused.
        gate: reviews wait for it.
        error: of all reviews; None: they are answered.
    """

    def __init__(self):
        self.users = {"alice's": {"username": "alice"}, "bob's": {"username": "bob"}}
        self.rights = {("alice", RIGHT)}
        self.reviewed, self.refused, self.error = [], [], None
        self.gate = asyncio.Event()
        self.gate.set()

    async def user(self, token):
        self.reviewed.append(token)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.users.get(token)

    async def allows(self, user, access):
        self.reviewed.append(access)
        return (user["username"], access) in self.rights


class Clock:
    """Seconds that a test sets."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def reviews():
    return Reviews()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def access(reviews, clock):
    return TokenAccess(reviews, on_refused=reviews.refused.append, clock_s=clock)


async def call(service, token=None, scheme="Bearer", **options):
    """Send a request; return status, headers, and the error of the answer."""
    body, headers = infer_body(rows_of(1, 1))
    if token is not None:
        headers = [*headers, ("Authorization", f"{scheme} {token}")]
    status, answer_headers, answer = await service.request("POST", INFER, body, headers, **options)
    return status, answer_headers, "" if status == 200 else error_of(answer)


async def test_a_token_with_the_right_is_answered_and_asked_once(access, reviews, clock):
    """The API server is asked at the first call, and again when its answer is old."""
    async with gateway(access=access) as service:
        for _ in range(3):
            assert (await call(service, "alice's"))[0] == 200
        assert reviews.reviewed == ["alice's", RIGHT]
        clock.now_s += ALLOWED_S
        assert (await call(service, "alice's", scheme="bearer"))[0] == 200
        assert reviews.reviewed == 2 * ["alice's", RIGHT]


@pytest.mark.parametrize(
    ("token", "scheme", "status", "text", "reviewed"),
    [
        (None, "", 401, "there is no token", 0),
        ("alice's", "Basic", 401, "there is no token", 0),
        ("", "Bearer", 401, "there is no token", 0),
        ("x" * 20_000, "Bearer", 401, "more than 16,384 bytes", 0),
        ("carol's", "Bearer", 401, "not valid", 1),
        ("bob's", "Bearer", 403, "user 'bob' may not create workflows/infer", 2),
    ],
)
async def test_others_are_refused(access, reviews, clock, token, scheme, status, text, reviewed):
    """The answer says what is missing; a refusal lasts for seconds, so that a Role soon counts."""
    async with gateway(access=access) as service:
        for _ in range(2):
            answer, headers, error = await call(service, token, scheme)
            assert answer == status
            assert text in error
            assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
        assert len(reviews.reviewed) == reviewed
        assert reviews.refused == [status, status]
        assert service.backend.calls == []
        reviews.rights.add(("bob", RIGHT))
        reviews.users["carol's"] = {"username": "alice"}
        clock.now_s += REFUSED_S
        assert (await call(service, token, scheme))[0] == (200 if reviewed else 401)


async def test_one_review_for_calls_at_the_same_time(access, reviews):
    """A caller that hangs up meanwhile ends nobody else's review."""
    reviews.gate.clear()
    async with gateway(access=access) as service:
        calls = [asyncio.create_task(call(service, "alice's")) for _ in range(4)]
        await eventually(lambda: service.memory.held_bytes > 0 and reviews.reviewed)
        calls[0].cancel()
        reviews.gate.set()
        outcomes = await asyncio.gather(*calls[1:])
    assert [outcome[0] for outcome in outcomes] == [200, 200, 200]
    assert reviews.reviewed == ["alice's", RIGHT]


async def test_without_an_answer_nobody_new_is_let_in(access, reviews):
    """Callers that were let in stay so; others get 503, and are reviewed at their next call."""
    async with gateway(access=access) as service:
        assert (await call(service, "alice's"))[0] == 200
        reviews.error = NoAnswerError("the API server is away", sent=False)
        assert (await call(service, "alice's"))[0] == 200
        status, headers, error = await call(service, "bob's")
        assert (status, headers["retry-after"]) == (503, "1")
        assert "the API server is away" in error
        reviews.error = None
        assert (await call(service, "bob's"))[0] == 403


async def test_reviews_and_verdicts_are_bounded(access, reviews, monkeypatch):
    """A flood of tokens gets 429, and old verdicts are forgotten first."""
    monkeypatch.setattr(module, "REVIEWS_MAX", 2)
    monkeypatch.setattr(module, "VERDICTS_MAX", 2)
    reviews.gate.clear()
    async with gateway(access=access) as service:
        running = [asyncio.create_task(call(service, f"{number}")) for number in range(2)]
        await eventually(lambda: len(reviews.reviewed) == 2)
        assert (await call(service, "third"))[0] == 429
        reviews.gate.set()
        await asyncio.gather(*running)
        assert (await call(service, "2"))[0] == 401
        reviews.reviewed.clear()
        assert (await call(service, "2"))[0] == 401
        assert (await call(service, "1"))[0] == 401
        assert reviews.reviewed == []
        assert (await call(service, "0"))[0] == 401
        assert reviews.reviewed == ["0"]


async def test_refusals_do_not_drive_out_permissions(access, reviews, monkeypatch):
    """However many invalid tokens come, a caller that was let in is not reviewed again."""
    monkeypatch.setattr(module, "VERDICTS_MAX", 2)
    async with gateway(access=access) as service:
        assert (await call(service, "alice's"))[0] == 200
        for number in range(5):
            assert (await call(service, f"{number}"))[0] == 401
        reviews.reviewed.clear()
        assert (await call(service, "alice's"))[0] == 200
        assert reviews.reviewed == []


async def test_one_source_does_not_take_all_reviews(access, reviews, monkeypatch):
    """A flood from one address leaves room for the callers of all others."""
    reviews.gate.clear()
    async with gateway(access=access) as service:
        flood = [asyncio.create_task(call(service, f"{number}")) for number in range(100)]
        await eventually(lambda: sum(task.done() for task in flood) == 100 - SOURCE_REVIEWS_MAX)
        assert len(reviews.reviewed) == SOURCE_REVIEWS_MAX
        valid = asyncio.create_task(call(service, "alice's", source="127.0.0.2"))
        await eventually(lambda: "alice's" in reviews.reviewed)
        reviews.gate.set()
        assert (await valid)[0] == 200
        outcomes = await asyncio.gather(*flood)
        assert sorted({status for status, _, _ in outcomes}) == [401, 429]
        assert (await call(service, "bob's"))[0] == 403


async def test_a_token_is_reviewed_once_for_all_workflows(access, reviews):
    """Its refusal is the token's, and a user is the same for all workflows, too."""
    async with gateway(access=access) as service:
        body, headers = infer_body(rows_of(1, 1))
        for token in ("carol's", "bob's"):
            authorized = [*headers, ("Authorization", f"Bearer {token}")]
            for namespace in ("a", "b", "c"):
                path = f"/{namespace}{INFER}"
                status, _, _ = await service.request("POST", path, body, authorized)
                assert status == (401 if token == "carol's" else 403)
    tokens = [item for item in reviews.reviewed if isinstance(item, str)]
    assert tokens == ["carol's", "bob's"]


async def test_a_refused_caller_holds_no_memory(access, reviews):
    """The review begins with the head, and its refusal ends the request before its body does."""
    async with gateway(access=access) as service, connection(service.port) as (reader, writer):
        reviews.gate.clear()
        length = 50_000_000
        headers = [("Authorization", "Bearer carol's"), ("Content-Length", length), (HEADER, 10)]
        writer.write(request_bytes("POST", INFER, headers=headers) + bytes(100_000))
        await eventually(lambda: service.memory.held_bytes == length and reviews.reviewed)
        reviews.gate.set()
        status, answer_headers, body = await read_answer(reader)
        assert (status, answer_headers["connection"]) == (401, "close")
        assert "not valid" in error_of(body)
        assert service.memory.held_bytes == 0
        assert reviews.refused == [401]


async def test_health_needs_no_token(access):
    """Probes and look-ups of metadata are answered to everybody."""
    async with gateway(access=access) as service:
        for path in ("/v2/health/ready", "/v2/models/double", "/v2/models/double/ready"):
            assert (await service.request("GET", path))[0] == 200


async def test_calls_over_grpc(access):
    """The token is metadata; the status codes are those of gRPC."""
    async with chain(access=access) as over:
        for headers, code in (
            (None, "UNAUTHENTICATED"),
            ({"authorization": "Bearer bob's"}, "PERMISSION_DENIED"),
        ):
            with pytest.raises(InferenceServerException) as caught:
                await over.client.infer("double", tensors(1.0), headers=headers)
            assert code in caught.value.status()
        headers = {"authorization": "Bearer alice's"}
        answer = await over.client.infer("double", tensors(1.0), headers=headers)
        assert answer.as_numpy("y").tolist() == [[2.0]]
        assert "authorization" not in over.player.metadata
