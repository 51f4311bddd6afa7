"""Disruption budgets select victims as kube-scheduler does."""

import pytest

from scheduler.cluster.resource import trim_disruption_budget
from scheduler.extender.disruption_budgets import DisruptionBudgets
from scheduler.ledger.reservation import Reservation


def budget(selector, *, allowed=0, disrupted=(), namespace="n"):
    return {
        "metadata": {"namespace": namespace, "name": "b", "resourceVersion": "1"},
        "spec": {"minAvailable": 1, "selector": selector},
        "status": {
            "disruptionsAllowed": allowed,
            "disruptedPods": dict.fromkeys(disrupted, "2030-01-01T00:00:00Z"),
        },
    }


def victim(name="p", **labels):
    return Reservation(name, "n", name, "node", 0, labels=labels)


def violating(document, *victims):
    budgets = DisruptionBudgets()
    budgets.upsert(trim_disruption_budget(document))
    return budgets.violating(victims)


def expression(operator, *values):
    return {"matchExpressions": [{"key": "app", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "a", "tier": "x"}}, False),
        (expression("In", "a", "b"), True),
        (expression("In", "b"), False),
        (expression("NotIn", "b"), True),
        (expression("NotIn", "a"), False),
        (expression("Exists"), True),
        (expression("DoesNotExist"), False),
        (expression("Unknown", "a"), False),
        ({"matchLabels": {"app": "a"}} | expression("NotIn", "a"), False),
        ({}, False),
        (None, False),
    ],
)
def test_a_selector_covers_pods_by_their_labels(selector, covers):
    """A selector without a requirement covers none, as in kube-scheduler."""
    assert violating(budget(selector), victim(app="a")) == ({"p"} if covers else set())


@pytest.mark.parametrize("selector", [expression("NotIn", "b"), expression("DoesNotExist")])
def test_a_pod_without_labels_is_covered_by_none(selector):
    """kube-scheduler looks at no budget for it."""
    assert violating(budget(selector), victim()) == set()


def test_a_budget_allows_its_disruptions_in_order():
    """The first two victims are allowed, the third one violates it."""
    victims = [victim(name, app="a") for name in "xyz"]
    assert violating(budget({"matchLabels": {"app": "a"}}, allowed=2), *victims) == {"z"}


def test_a_disrupted_pod_counts_no_second_time():
    """The API server has evicted it: its budget does not pay for it again."""
    document = budget({"matchLabels": {"app": "a"}}, disrupted=["x"])
    assert violating(document, victim("x", app="a"), victim("y", app="a")) == {"y"}


def test_a_list_replaces_all_budgets_and_a_deletion_removes_one():
    """No budget remains that the cluster does not have."""
    budgets = DisruptionBudgets()
    document = budget({"matchLabels": {"app": "a"}})
    budgets.upsert(budget({"matchLabels": {"app": "a"}}, namespace="other"))
    budgets.replace([document])
    assert budgets.violating([victim(app="a")]) == {"p"}
    budgets.delete(document)
    assert budgets.violating([victim(app="a")]) == set()
