"""State of the gateway for metrics and for people: queues, pods, and documents without a use."""

from collections import Counter, defaultdict
from typing import Any

from scheduler.dispatch.pods import FunctionKey
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.metrics import Gauges, pool_gauges
from scheduler.gateway.service import GatewayService
from scheduler.model.plan import MS_PER_HOUR


def gauges_of(service: GatewayService) -> Gauges:
    """Read the state of queues and pods."""
    states: defaultdict[FunctionKey, Counter[str]] = defaultdict(Counter)
    dollars_per_hour: defaultdict[FunctionKey, float] = defaultdict(float)
    prices = service.settings.prices
    for pod in service.discovery.known_pods():
        states[pod.function][pod.state] += 1
        if pod.pooled:
            continue
        dollars_per_hour[pod.function] += prices.request_cost_dollars(
            MS_PER_HOUR, pod.cpu, pod.gpu_percent, 1, pod.gpu_model
        )
    servers = list(service.discovery.in_use())
    return Gauges(
        queued_rows=service.runtime.queued_rows(),
        pods={server.function_key: states[server.function_key] for server in servers},
        pods_wanted={
            server.function_key: service.pods_wanted(server, states[server.function_key]["ready"])
            for server in servers
        },
        dollars_per_hour=dollars_per_hour,
        body_bytes=service.memory.held_bytes,
        pools=pool_gauges(
            service.runtime.dispatcher.slices, service.discovery.known_pods(), prices
        ),
        p95_ratios=service.metrics.by_run_stage(
            {
                key: function.pool.p95_ratio
                for key, function in service.runtime.dispatcher.functions.items()
                if function.pool.p95_ratio
            }
        ),
        limits_dollars=service.cost_limits.dollars,
    )


def refresh_gauges(service: GatewayService) -> None:
    """Set what the next scrape shows of the state."""
    service.metrics.ready.labels("gateway").set(not service.not_ready_reason())
    service.metrics.gauges = gauges_of(service)
    service.metrics.unusable_documents.set(len(unusable_documents(service)))
    for resource, seconds in service.link.staleness_s().items():
        service.metrics.staleness.labels(resource).set(seconds)


def unusable_documents(service: GatewayService) -> dict[str, str]:
    """Map documents that are not used to their problems."""
    invalid = {
        "Workflow": service.documents.store.workflows.problems,
        "FunctionServer": service.discovery.servers.problems,
    }
    profiles = service.documents.store.profiles.problems
    unserved = {**service.documents.problems, **service.discovery.problems}
    return {
        **{f"FunctionProfile {name}": "; ".join(texts) for name, texts in profiles.items()},
        **{
            f"{kind} {'/'.join(key)}": "; ".join(texts)
            for kind, problems in invalid.items()
            for key, texts in problems.items()
        },
        **{
            f"{kind} {namespace}/{name}": text
            for (kind, namespace, name), text in unserved.items()
            if kind != "Pod"
        },
    }


def queues(service: GatewayService) -> dict[str, Any]:
    """Describe queues, pods and problems, for people."""
    gauges = gauges_of(service)
    workflows: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (namespace, workflow, stage), rows in gauges.queued_rows.items():
        workflows[f"{namespace}/{workflow}"][stage] = rows
    pods: defaultdict[FunctionKey, list[dict[str, Any]]] = defaultdict(list)
    for pod in service.discovery.known_pods():
        pods[pod.function].append(_described(pod))
    unused_pods = {
        f"{namespace}/{name}": text
        for (kind, namespace, name), text in service.discovery.problems.items()
        if kind == "Pod"
    }
    return {
        "queued_rows": workflows,
        "functions": {
            "/".join(server.function_key): {
                "server": server.metadata.name,
                "pods_wanted": gauges.pods_wanted[server.function_key],
                "pods": pods[server.function_key],
            }
            for server in service.discovery.in_use()
        },
        "unused_documents": unusable_documents(service),
        "unused_pods": unused_pods,
    }


def simulated_cluster(service: GatewayService) -> dict[str, Any]:
    """Describe nodes and settings for a simulation, by keys of its scenario.

    ``node_kinds`` has the nodes with GPUs, where this gateway creates pods.
    """
    template_pods, gateway = service.template_pods, service.gateway
    cluster: dict[str, Any] = service.settings.simulated
    if service.nodes is None or template_pods is None:
        return cluster
    servers = [s for s in service.discovery.in_use() if s.spec.template is not None]
    pooled = {server.key for server in template_pods.holders.servers()}
    keep_alives_ms = {server.spec.keep_alive_ms for server in servers}
    return cluster | {
        "node_kinds": [
            kind._asdict() | {"count": count} for kind, count in service.nodes.kinds().items()
        ],
        "pool": bool(pooled),
        "pool_gpus": gateway.pool_gpus,
        "keep_alive_ms": keep_alives_ms.pop() if len(keep_alives_ms) == 1 else None,
    }


def _described(pod: ServerPod) -> dict[str, Any]:
    return {
        "name": pod.name,
        "state": pod.state,
        "node": pod.node,
        "gpu": pod.gpu,
        "gpu_model": pod.gpu_model,
        "gpu_percent": pod.gpu_percent,
        "cpu": pod.cpu,
    }
