"""The sample MutatingWebhookConfiguration says what the webhook relies on."""

from typing import Any

import yaml

from scheduler.model import names
from scheduler.webhook.wire import API_VERSION
from tests.webhook.serving import DEPLOY


def matches(webhook: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether the webhook's objectSelector takes an object with these labels."""
    wanted = {"Exists": True, "DoesNotExist": False}
    return all(
        (term["key"] in labels) == wanted[term["operator"]]
        for term in webhook["objectSelector"]["matchExpressions"]
    )


def test_every_function_pod_is_sent_once_and_no_other_pod() -> None:
    """The two selectors cover both labels, and do not overlap."""
    [document] = yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text())
    workflow, function = {names.LABEL_WORKFLOW: "w"}, {names.LABEL_FUNCTION: "f"}
    for labels, expected in [(workflow, 1), (function, 1), (workflow | function, 1), ({}, 0)]:
        assert sum(matches(webhook, labels) for webhook in document["webhooks"]) == expected


def test_nothing_slips_past() -> None:
    """Each fails closed, has no side effect, is asked again, and speaks the served version."""
    [document] = yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text())
    for webhook in document["webhooks"]:
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["sideEffects"] == "None"
        assert webhook["reinvocationPolicy"] == "IfNeeded"
        assert webhook["admissionReviewVersions"] == [API_VERSION.split("/")[1]]
        assert webhook["clientConfig"]["service"]["path"] == "/mutate"
        [rule] = webhook["rules"]
        assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
