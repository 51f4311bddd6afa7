"""Tokens that no review can accept are refused without one."""

import asyncio
import contextlib
import time
from base64 import urlsafe_b64encode

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic_core import to_json

from scheduler.cluster.access_reviews import Access, TokenIssuer
from scheduler.cluster.errors import NoAnswerError
from scheduler.gateway import token_filter as module
from scheduler.gateway.access import TokenAccess
from scheduler.gateway.token_filter import TokenFilter
from tests.gateway.harness import eventually, gateway
from tests.gateway.test_access import Reviews, call

ISSUER, AUDIENCE = "https://kubernetes.default.svc", "https://kubernetes.default.svc"
ALICE = "system:serviceaccount:default:alice"


def unsigned(claims):
    """Return a token without a signature."""
    parts = ({"alg": "none", "kid": "a"}, claims)
    return ".".join(
        [*(urlsafe_b64encode(to_json(part)).decode().rstrip("=") for part in parts), ""]
    )


class SigningKey:
    """A private key, and its public half as the API server shows it."""

    def __init__(self, name, *, elliptic=False):
        self.name = name
        if elliptic:
            self._private = ec.generate_private_key(ec.SECP256R1())
            self.algorithm, kind = "ES256", jwt.algorithms.ECAlgorithm
        else:
            self._private = rsa.generate_private_key(65537, 2048)
            self.algorithm, kind = "RS256", jwt.algorithms.RSAAlgorithm
        public = kind.to_jwk(self._private.public_key(), as_dict=True)
        self.public = public | {"kid": name, "alg": self.algorithm, "use": "sig"}

    def token(self, *, name=None, **claims):
        whole = {
            "iss": ISSUER,
            "aud": [AUDIENCE],
            "sub": ALICE,
            "iat": int(time.time()),
            "exp": int(time.time()) + 86_400,  # it may be used long after the module is imported
            **claims,
        }
        whole = {key: value for key, value in whole.items() if value is not None}
        headers = {"kid": name or self.name}
        return jwt.encode(whole, self._private, self.algorithm, headers=headers)


KEY, ELLIPTIC, FOREIGN = SigningKey("a"), SigningKey("b", elliptic=True), SigningKey("a")


class ClusterReviews(Reviews):
    """Reviews of a cluster that shows its keys.

    Attributes:
        keys: those that it shows.
        unreadable: the error of reading them, or None.
        reads: how often they were read.
    """

    def __init__(self, own_token=""):
        super().__init__()
        self.keys, self.unreadable, self.reads = [KEY, ELLIPTIC], None, 0
        self.own_token = own_token

    async def issuer(self):
        self.reads += 1
        if self.unreadable is not None:
            raise self.unreadable
        return TokenIssuer(ISSUER, {"keys": [key.public for key in self.keys]}, self.own_token)

    def let_in(self, token):
        self.users[token] = {"username": ALICE}
        right = Access("default", "create", "esg-scheduler.io", "workflows/infer", "double")
        self.rights.add((ALICE, right))


@contextlib.asynccontextmanager
async def following(reviews, *further):
    """Follow the keys of a cluster; yields the access control."""
    token_filter = TokenFilter(reviews, frozenset(further))
    task = asyncio.create_task(token_filter.follow())
    try:
        if "*" not in further:
            await eventually(lambda: reviews.reads)
        yield TokenAccess(reviews, prefilter=token_filter.check, on_refused=reviews.refused.append)
    finally:
        task.cancel()
        await asyncio.wait([task])


GOOD = {
    "a service account's": KEY.token(),
    "by an elliptic curve": ELLIPTIC.token(),
    "one audience": KEY.token(aud=AUDIENCE),
}
BAD = {
    "no JWT": "alice's",
    "two parts": "a.b",
    "nothing in three parts": "..",
    "no JSON": "x.y.z",
    "a list": "W10.W10.W10",
    "another key of the same name": FOREIGN.token(),
    "an unknown key": KEY.token(name="c"),
    "a key of another algorithm": ELLIPTIC.token(name="a"),
    "another issuer": KEY.token(iss="https://other"),
    "no issuer": KEY.token(iss=None),
    "an issuer that is a list": unsigned({"iss": [ISSUER]}),
    "another audience": KEY.token(aud=["vault"]),
    "no audience": KEY.token(aud=None),
    "expired": KEY.token(exp=int(time.time()) - 3600),
    "no signature": unsigned({"iss": ISSUER, "aud": AUDIENCE}),
    "a changed signature": KEY.token()[:-4] + "AAAA",
}


async def test_a_token_that_ended_just_now_is_reviewed():
    """The API server's clock may be late; it decides."""
    reviews = ClusterReviews(own_token=KEY.token())
    async with following(reviews) as access, gateway(access=access) as service:
        token = KEY.token(exp=int(time.time()) - 5)
        assert (await call(service, token))[0] == 401
        assert reviews.reviewed == [token]


@pytest.mark.parametrize("token", GOOD.values(), ids=GOOD)
async def test_a_token_of_the_cluster_is_reviewed(token):
    """Its account may be deleted: only a review knows."""
    reviews = ClusterReviews(own_token=KEY.token())
    async with following(reviews) as access, gateway(access=access) as service:
        assert (await call(service, token))[0] == 401
        assert reviews.reviewed == [token]
        allowed = KEY.token(jti="2")
        reviews.let_in(allowed)
        assert (await call(service, allowed))[0] == 200


async def test_a_clock_may_be_late():
    """A token that ended seconds ago by the gateway's clock is reviewed."""
    reviews = ClusterReviews(own_token=KEY.token())
    async with following(reviews) as access, gateway(access=access) as service:
        token = KEY.token(exp=int(time.time()) - 5)
        await call(service, token)
        assert reviews.reviewed == [token]


@pytest.mark.parametrize("token", BAD.values(), ids=BAD)
async def test_any_other_token_is_refused_without_a_review(token):
    reviews = ClusterReviews(own_token=KEY.token())
    async with following(reviews) as access, gateway(access=access) as service:
        status, _, error = await call(service, token)
        assert status == 401
        assert "get another one" in error
        assert (reviews.reviewed, reviews.refused) == ([], [401])


async def test_a_flood_of_forged_tokens_takes_no_review_from_a_valid_caller():
    """Its first call is answered while the flood goes on, from the same address."""
    reviews = ClusterReviews(own_token=KEY.token())
    valid = KEY.token(jti="1")
    reviews.let_in(valid)
    forged = valid[:-4]
    async with following(reviews) as access, gateway(access=access) as service:
        flood = [asyncio.create_task(call(service, f"{forged}{n:04}")) for n in range(100)]
        calls = [asyncio.create_task(call(service, valid)) for _ in range(10)]
        statuses = [status for status, _, _ in await asyncio.gather(*flood, *calls)]
        assert statuses == [401] * 100 + [200] * 10
        assert [item for item in reviews.reviewed if isinstance(item, str)] == [valid]


async def test_without_a_token_of_its_own_any_audience_is_reviewed():
    """A gateway with a client certificate does not know those of the API server."""
    reviews = ClusterReviews()
    token = KEY.token(aud=["vault"])
    async with following(reviews) as access, gateway(access=access) as service:
        await call(service, token)
        assert reviews.reviewed == [token]


async def test_tokens_of_further_issuers_are_reviewed():
    """The API server's OIDC users; with `*`, any token."""
    oidc = FOREIGN.token(iss="https://login.example.com", aud="kubernetes")
    for further, expected in (
        ((), []),
        (("https://login.example.com",), [oidc]),
        (("*",), [oidc, "any"]),
    ):
        reviews = ClusterReviews(own_token=KEY.token())
        async with following(reviews, *further) as access, gateway(access=access) as service:
            for token in (oidc, "any"):
                assert (await call(service, token))[0] == 401
            assert reviews.reviewed == expected


async def test_keys_are_read_again(monkeypatch, logged):
    """A rotated key counts; while the API server is away, the last ones do."""
    monkeypatch.setattr(module, "REFRESH_S", 0.001)
    reviews = ClusterReviews(own_token=KEY.token())
    rotated = SigningKey("c")
    async with following(reviews) as access, gateway(access=access) as service:
        reviews.unreadable = NoAnswerError("away", sent=False)
        await eventually(lambda: logged)
        await call(service, KEY.token())
        await call(service, FOREIGN.token())
        assert len(reviews.reviewed) == 1
        reviews.unreadable, reviews.keys = None, [rotated]
        reads = reviews.reads
        await eventually(lambda: reviews.reads > reads + 1)
        await call(service, KEY.token(jti="2"))
        await call(service, rotated.token())
        assert len(reviews.reviewed) == 2
    assert [entry["event"] for entry in logged] == ["the last keys stay in use"]


@pytest.mark.parametrize("keys", [{}, {"keys": []}, {"keys": [{"kty": "oct"}]}, {"keys": 3}])
async def test_a_cluster_that_shows_no_keys_reviews_every_token(keys, logged):
    """A warning says so."""
    reviews = ClusterReviews()

    async def issuer():
        reviews.reads += 1
        return TokenIssuer(ISSUER, keys, "")

    reviews.issuer = issuer
    async with following(reviews) as access, gateway(access=access) as service:
        await eventually(lambda: logged)
        assert (await call(service, "alice's"))[0] == 200
    assert "each unknown token is reviewed" in logged[0]["event"]
