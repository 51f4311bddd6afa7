"""The sample MutatingWebhookConfiguration has what the webhook relies on."""

import yaml

from scheduler.model import names
from scheduler.webhook.wire import API_VERSION
from tests.webhook.harness import DEPLOY


def matches(webhook, labels):
    """Return true if the webhook's objectSelector matches an object with these labels."""
    expected = {"Exists": True, "DoesNotExist": False}
    return all(
        (term["key"] in labels) == expected[term["operator"]]
        for term in webhook["objectSelector"]["matchExpressions"]
    )


def test_only_function_pods_are_sent_and_only_once():
    """The two selectors cover both labels, and do not overlap."""
    [document] = yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text())
    workflow, function = {names.LABEL_WORKFLOW: "w"}, {names.LABEL_FUNCTION: "f"}
    for labels, expected in [(workflow, 1), (function, 1), (workflow | function, 1), ({}, 0)]:
        assert sum(matches(webhook, labels) for webhook in document["webhooks"]) == expected


def test_webhooks_fail_closed():
    """Each has no side effect, is reinvoked, and speaks the served version."""
    [document] = yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text())
    for webhook in document["webhooks"]:
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["sideEffects"] == "None"
        assert webhook["reinvocationPolicy"] == "IfNeeded"
        assert webhook["admissionReviewVersions"] == [API_VERSION.split("/")[1]]
        assert webhook["clientConfig"]["service"]["path"] == "/mutate"
        [rule] = webhook["rules"]
        assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
