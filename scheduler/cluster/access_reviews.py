"""Questions to the API server: who a token is of, and what its user may do."""

from typing import Any, NamedTuple

from scheduler.cluster.api import Api

_ISSUER = "/.well-known/openid-configuration"
_KEYS = "/openid/v1/jwks"
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Access(NamedTuple):
    """A right to one object.

    Attributes:
        resource: plural of the resource, with its subresource, as in a Role: ``workflows/infer``.
        name: name of the object.
    """

    namespace: str
    verb: str
    group: str
    resource: str
    name: str


class TokenIssuer(NamedTuple):
    """Issuer of the cluster's service account tokens.

    Attributes:
        name: the claim ``iss`` of its tokens.
        keys: a JSON Web Key Set.
        own_token: token of this process, whose audiences are those of the API server; empty if it
            has none.
    """

    name: str
    keys: dict[str, Any]
    own_token: str


class AccessReviews:
    """Reviews of tokens and rights."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def issuer(self) -> TokenIssuer:
        """Return the issuer of service account tokens.

        Raises:
            ClusterError: there is no answer.
        """
        document = await self._api.get(_ISSUER)
        keys = await self._api.get(_KEYS)
        return TokenIssuer(str(document.get("issuer", "")), keys, await self._api.token())

    async def user(self, token: str) -> dict[str, Any] | None:
        """Return the user of a token, as a TokenReview describes it; None: the token is not valid.

        Raises:
            ClusterError: there is no answer.
        """
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = (await self._api.post(_TOKEN_REVIEWS, review)).get("status") or {}
        user: dict[str, Any] | None = status.get("user")
        return user if status.get("authenticated") and user and user.get("username") else None

    async def allows(self, user: dict[str, Any], access: Access) -> bool:
        """Return true if a user has a right.

        Raises:
            ClusterError: there is no answer.
        """
        resource, _, subresource = access.resource.partition("/")
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user["username"],
                **{key: user[key] for key in ("uid", "groups", "extra") if user.get(key)},
                "resourceAttributes": {
                    "namespace": access.namespace,
                    "verb": access.verb,
                    "group": access.group,
                    "resource": resource,
                    "subresource": subresource,
                    "name": access.name,
                },
            },
        }
        status = (await self._api.post(_ACCESS_REVIEWS, review)).get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True
