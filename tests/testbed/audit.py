"""Audit log of the test bed's API server: rights that the accounts of our programs use."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.testbed.api import Json

USERS = ("esg-scheduler", "esg-gateway", "esg-agent", "esg-webhook")
"""Users of the roles in deploy/."""

READ_WRITE = ("get", "list", "watch", "create", "patch")


class Right(NamedTuple):
    """One verb on one resource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def write_policy(file: Path) -> Path:
    """Write a policy that logs every request of our accounts once, when it arrives."""
    omitted = ["ResponseStarted", "ResponseComplete", "Panic"]
    ours = {"level": "Metadata", "users": list(USERS), "omitStages": omitted}
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [ours, {"level": "None"}]}
    file.write_text(json.dumps(policy), encoding="utf-8")
    return file


def used_rights(log: Path, user: str, *, after_lines: int = 0) -> set[Right]:
    """Return what a user has requested since the API server's first start, or after some lines.

    Requests that were refused count, too.
    """
    return set(request_counts(log, user, after_lines=after_lines))


def request_counts(log: Path, user: str, *, after_lines: int = 0) -> Counter[Right]:
    """Count the requests of a user, as `used_rights` lists them."""
    return Counter(
        Right(target.get("apiGroup", ""), _resource(target), event["verb"])
        for event, target in _requests(log, user, after_lines)
    )


def status_patches(log: Path, user: str, *, after_lines: int = 0) -> list[str]:
    """Return the documents whose status a user has patched, once for each request."""
    return [
        f"{target['resource']}/{target['name']}"
        for event, target in _requests(log, user, after_lines)
        if target.get("subresource") == "status"
        and "esg-scheduler" in target.get("apiGroup", "")
        and event["verb"] == "patch"
    ]


def _requests(log: Path, user: str, after_lines: int) -> Iterator[tuple[Json, Json]]:
    """Yield the requests of a user for objects, and these objects."""
    for line in log.read_text(encoding="utf-8").splitlines()[after_lines:]:
        event = json.loads(line)
        if event["user"]["username"] == user and event.get("objectRef") is not None:
            yield event, event["objectRef"]


def _resource(target: Json) -> str:
    parts = (target["resource"], target.get("subresource"))
    return "/".join(part for part in parts if part)


def granted_rights(documents: Iterable[Json]) -> set[Right]:
    """Return what the rules of roles allow."""
    return {
        Right(group, resource, verb)
        for document in documents
        for rule in document.get("rules", ())
        for group in rule.get("apiGroups", ())  # a rule of URLs has none
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
