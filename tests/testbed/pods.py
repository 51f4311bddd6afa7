"""Function pods of users: labels name workflow, stage and function."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

PREFIX = "esg-scheduler.io"


def function_pod(
    name: str,
    *,
    workflow: str | None = None,
    stage: str | None = None,
    function: str | None = None,
    request: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    priority_class: str | None = None,
    scheduler_name: str = "esg-scheduler",
    grace_s: int | None = None,
) -> dict[str, Any]:
    """Create a Pod object with one container named `function`.

    Args:
        name: name of the pod.
        workflow: label; absent if None, like the next four.
        stage: label.
        function: label; alone it stands for a workflow of one stage.
        request: label, the workflow instance.
        labels: further labels.
        annotations: keys without a `/` get the prefix esg-scheduler.io.
        resources: requests, and limits equal to them, of the container.
        priority_class: name of a PriorityClass.
        scheduler_name: scheduler of the pod.
        grace_s: grace period of its containers, seconds; None: the cluster's default.
    """
    names = {"workflow": workflow, "stage": stage, "function": function, "request": request}
    amounts = {"requests": dict(resources), "limits": dict(resources)} if resources else {}
    spec: dict[str, Any] = {
        "schedulerName": scheduler_name,
        "restartPolicy": "Never",
        "containers": [{"name": "function", "image": "example.org/function", "resources": amounts}],
    }
    if grace_s is not None:
        spec["terminationGracePeriodSeconds"] = grace_s
    if priority_class is not None:
        spec["priorityClassName"] = priority_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {
                **{f"{PREFIX}/{key}": value for key, value in names.items() if value},
                **(labels or {}),
            },
            "annotations": {
                key if "/" in key else f"{PREFIX}/{key}": value
                for key, value in (annotations or {}).items()
            },
        },
        "spec": spec,
    }


def rfc3339(moment: datetime) -> str:
    """Format a time in UTC with milliseconds, as in the annotations `arrival` and `deadline`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
