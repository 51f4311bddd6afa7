"""Situation of a cluster, for reports of failures: the cluster is gone when one reads them."""

import os
from collections.abc import Iterator

import httpx

from tests.node.real_cluster import statuses
from tests.testbed.api import Api, ApiError, Json

WARNINGS = 20


def situation(api: Api) -> str:
    """Return the machine's load, the nodes, the pods that have not succeeded, the last warnings."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [f"{os.cpu_count()} processors, load {load}"]
    try:
        lines += map(_node, api.items("/api/v1/nodes"))
        lines += map(_pod, api.items("/api/v1/pods", fieldSelector="status.phase!=Succeeded"))
        lines += _warnings(api)
    except (ApiError, httpx.HTTPError) as error:
        lines.append(f"no answer of the API server: {error!r}")
    return "\n".join(lines)


def _node(node: Json) -> str:
    spec, status = node["spec"], node["status"]
    states = [f"{c['type']}={c['status']}" for c in status.get("conditions", [])]
    states += ["unschedulable"] if spec.get("unschedulable") else []
    states += [f"taint {taint['key']}:{taint['effect']}" for taint in spec.get("taints", [])]
    return f"node {node['metadata']['name']}: {', '.join(states)}"


def _pod(pod: Json) -> str:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    states = [status.get("phase", ""), *(["deleted"] if "deletionTimestamp" in metadata else [])]
    states += [
        f"{condition['type']}: {condition['message']}"
        for condition in status.get("conditions", [])
        if condition["status"] != "True" and condition.get("message")
    ]
    for container in statuses(pod):
        state, details = next(iter(container["state"].items()), ("unknown", {}))
        reason = details.get("message") or details.get("reason") or ""
        states.append(
            f"{container['name']} {state} {reason} ({container['restartCount']} restarts)"
        )
    name = f"{metadata['namespace']}/{metadata['name']}"
    return f"pod {name} on {spec.get('nodeName', 'no node')}: {', '.join(states)}"


def _warnings(api: Api) -> Iterator[str]:
    events = api.items("/api/v1/events", fieldSelector="type=Warning")
    for event in sorted(events, key=_last_at)[-WARNINGS:]:
        about = event["involvedObject"]
        name = f"{about['kind']} {about.get('namespace', '')}/{about['name']}"
        yield f"{_last_at(event)} {name}: {event.get('reason')}: {event.get('message', '').strip()}"


def _last_at(event: Json) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""
