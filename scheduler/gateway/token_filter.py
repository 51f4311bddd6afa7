"""Tokens that the API server cannot accept, told from others without asking it.

A flood of such tokens would otherwise be a flood of TokenReviews, in which callers with a good
token do not get theirs. A token that passes is reviewed all the same: its account may be deleted.
"""

import asyncio
from typing import Final, Protocol

import jwt
import structlog
from jwt.types import Options

from scheduler.cluster.access_reviews import TokenIssuer
from scheduler.cluster.errors import ClusterError
from scheduler.gateway.calls import CallError

log = structlog.get_logger(__name__)
REFRESH_S = 60.0
ANY_ISSUER = "*"
_LEEWAY_S = 60.0  # of clocks
_UNVERIFIED: Final[Options] = {"verify_signature": False}


class IssuerReader(Protocol):
    """Reader of the cluster's issuer, as `scheduler.cluster.access_reviews.AccessReviews`."""

    async def issuer(self) -> TokenIssuer:
        """Return the issuer of service account tokens."""


class TokenFilter:
    """Checks issuer, signature, audience and time of tokens.

    Args:
        reader: connection to the API server.
        further_issuers: issuers whose tokens pass unchecked, besides that of service accounts.
    """

    def __init__(self, reader: IssuerReader, further_issuers: frozenset[str]) -> None:
        self._reader = reader
        self._further_issuers = further_issuers
        self._issuer = ""
        self._audiences: tuple[str, ...] = ()
        self._keys: dict[str | None, jwt.PyJWK] = {}

    async def follow(self) -> None:
        """Read issuer and keys now and every minute, until cancelled.

        Until they are known, all tokens pass. While the API server is away, the last keys count.
        """
        if ANY_ISSUER in self._further_issuers:
            return
        problem = ""
        while True:
            try:
                self._set(await self._reader.issuer())
            except (ClusterError, jwt.PyJWTError, KeyError, TypeError) as error:
                if problem != str(error):
                    log.warning(
                        "the keys of service account tokens cannot be read; each unknown token "
                        "is reviewed"
                        if not self._keys
                        else "the last keys stay in use",
                        problem=str(error),
                    )
                problem = str(error)
            else:
                problem = ""
            await asyncio.sleep(REFRESH_S)

    def check(self, token: str) -> None:
        """Check a token.

        Raises:
            CallError: 401; the API server would not accept it.
        """
        if not self._keys:
            return
        try:
            claimed = jwt.decode_complete(token, options=_UNVERIFIED)
            if claimed["payload"]["iss"] in self._further_issuers:
                return
            key = self._keys[claimed["header"]["kid"]]
            jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._issuer,
                audience=self._audiences or None,
                options=Options(verify_aud=bool(self._audiences)),
                leeway=_LEEWAY_S,
            )
        except (jwt.PyJWTError, KeyError, TypeError):
            raise CallError(
                401, "the token is none of a service account of this cluster; get another one"
            ) from None

    def _set(self, issuer: TokenIssuer) -> None:
        keys = jwt.PyJWKSet.from_dict(issuer.keys)
        audiences: str | list[str] = []
        if issuer.own_token:
            audiences = jwt.decode(issuer.own_token, options=_UNVERIFIED).get("aud") or []
        self._issuer = issuer.name
        self._audiences = (audiences,) if isinstance(audiences, str) else tuple(audiences)
        self._keys = {key.key_id: key for key in keys}
