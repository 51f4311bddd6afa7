"""PodDisruptionBudgets, and the victims of a preemption that violate them.

kube-scheduler counts the violations of the victims that it proposes and prefers the node with the
fewest. The victims are changed here, so they are counted again, by the rule of kube-scheduler:
a budget allows the disruptions of its status, and an empty selector matches no pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.ledger.reservation import Reservation


@dataclass(frozen=True, slots=True)
class _DisruptionBudget:
    namespace: str
    selector: Mapping[str, Any]
    disruptions_allowed: int
    disrupted_pods: frozenset[str]  # names; their disruptions are counted already

    def covers(self, pod: Reservation) -> bool:
        return (
            pod.namespace == self.namespace
            and bool(pod.labels)  # as in kube-scheduler, whatever the selector excludes
            and pod.name not in self.disrupted_pods
            and _matches(self.selector, pod.labels)
        )


class DisruptionBudgets:
    """The budgets of a cluster; a reflector's handler."""

    def __init__(self) -> None:
        self._budgets: dict[tuple[str, str], _DisruptionBudget] = {}

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Replace all budgets by those of a list."""
        self._budgets.clear()
        for item in items:
            self.upsert(item)

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Add or change a budget."""
        metadata, status = item["metadata"], item.get("status") or {}
        self._budgets[metadata["namespace"], metadata["name"]] = _DisruptionBudget(
            metadata["namespace"],
            (item.get("spec") or {}).get("selector") or {},
            status.get("disruptionsAllowed") or 0,
            frozenset(status.get("disruptedPods") or ()),
        )

    def delete(self, item: Mapping[str, Any]) -> None:
        """Remove a budget."""
        metadata = item["metadata"]
        self._budgets.pop((metadata["namespace"], metadata["name"]), None)

    def violating(self, victims: Iterable[Reservation]) -> frozenset[str]:
        """Return the UIDs of the victims whose eviction, in this order, violates a budget."""
        allowed = {key: budget.disruptions_allowed for key, budget in self._budgets.items()}
        violating = set()
        for victim in victims if allowed else ():
            for key, budget in self._budgets.items():
                if budget.covers(victim):
                    allowed[key] -= 1
                    if allowed[key] < 0:
                        violating.add(victim.uid)
        return frozenset(violating)


def _matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return true if a LabelSelector matches; one without a requirement matches nothing."""
    values = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return (
        bool(values or expressions)
        and all(labels.get(key) == value for key, value in values.items())
        and all(_holds(expression, labels) for expression in expressions)
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
