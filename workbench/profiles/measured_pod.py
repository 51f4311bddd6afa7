"""A pod in a cluster whose function is measured: its object, its start, its end (ADR 50)."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from scheduler.cluster.api import Api
from scheduler.cluster.binding import pod_path
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.cluster.object_list import list_all
from scheduler.cluster.pods import PodWriter
from scheduler.cluster.reflector import PAGE
from scheduler.cluster.resource import PODS
from scheduler.gateway.discovery.holder_pods import unschedulable_text
from scheduler.gateway.scaling.pod_writes import create_pod, delete_pod
from scheduler.gateway.scaling.pool_pod import new_name
from scheduler.model import names
from scheduler.model.function_server import FunctionServer
from scheduler.model.grant import Grant, grant_of
from scheduler.model.pod import has_ended
from scheduler.model.pod_fields import PodError
from scheduler.model.pod_template import pod_of_template

_POLL_S = 0.1
_DELETION_S = 30.0


class MeasuredPodError(Exception):
    """A pod cannot be measured; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShare:
    """Share that a pod states.

    Attributes:
        batch: largest batch.
        memory_mib: GPU memory.
        gpu_model: NVML's name of the GPU; empty: any.
    """

    batch: int
    cpu: int
    gpu_percent: int
    memory_mib: int
    gpu_model: str = ""

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the pod."""
        configuration = {"batch": self.batch, "cpu": self.cpu, "gpuPercent": self.gpu_percent}
        return {
            names.ANNOTATION_CONFIGURATION: json.dumps(configuration),
            names.ANNOTATION_MEMORY: str(self.memory_mib),
            **({names.ANNOTATION_GPU_MODEL: self.gpu_model} if self.gpu_model else {}),
        }


@dataclass(frozen=True, slots=True)
class StartedPod:
    """A pod that has an address.

    Attributes:
        name: ``namespace/name``.
        host: address of the pod.
        sent_s: time at which its creation was sent, on the monotonic clock.
        has_waited: true if the scheduler had no node for it at first.
    """

    name: str
    host: str
    grant: Grant
    sent_s: float
    has_waited: bool


@asynccontextmanager
async def measured_pod(  # noqa: PLR0913 - each by its name
    api: Api,
    server: FunctionServer,
    share: PodShare,
    *,
    scheduler_name: str,
    start_s: float,
    life_s: float,
    report: Callable[[str], None],
) -> AsyncIterator[StartedPod]:
    """Create a pod of the template, wait for its address, and delete it when the block ends.

    The pod ends by itself after a time, in case that this process is killed.

    Args:
        api: the API server, with the caller's rights.
        server: FunctionServer with a template.
        share: share that the pod states.
        scheduler_name: scheduler of the pod if the template names none; empty: none.
        start_s: longest time until it has an address, in seconds.
        life_s: time after which the kubelet ends the pod, in seconds.
        report: prints why the pod still waits, or remains.

    Raises:
        MeasuredPodError: the pod is refused, ends, or has no address in time.
    """
    namespace, _, name = new_name(server).partition("/")
    pod = _pod(server, share, name, scheduler_name, life_s)
    writer = PodWriter(api)
    sent_s = time.monotonic()
    refusal = None
    try:
        try:
            async with asyncio.timeout(start_s):
                refusal = await create_pod(writer, namespace, pod)
                if refusal is not None:
                    raise MeasuredPodError(f"the API server refused pod {name}: {refusal.message}")
                started = await _started(api, namespace, name, sent_s, report)
        except TimeoutError:
            raise MeasuredPodError(
                f"pod {namespace}/{name} has no address after {start_s:g} s; see "
                "`kubectl describe`, or give --start-s"
            ) from None
        yield started
    finally:
        if refusal is None:
            await _delete(writer, namespace, name, life_s, report)


async def _delete(
    writer: PodWriter, namespace: str, name: str, life_s: float, report: Callable[[str], None]
) -> None:
    try:
        async with asyncio.timeout(_DELETION_S):
            await asyncio.shield(delete_pod(writer, namespace, name, ""))
    except TimeoutError:
        report(
            f"pod {namespace}/{name} is not deleted after {_DELETION_S:g} s; delete it, or it "
            f"ends by itself in {life_s:,.0f} s"
        )


def _pod(
    server: FunctionServer, share: PodShare, name: str, scheduler_name: str, life_s: float
) -> dict[str, Any]:
    pod = pod_of_template(
        server.spec.template or {},
        name=name,
        labels={
            names.LABEL_FUNCTION: server.spec.function,
            names.LABEL_MEASUREMENT: names.MEASURED,
        },
        annotations=share.annotations(),
        owner=None,
        scheduler_name=scheduler_name,
    )
    pod["spec"]["activeDeadlineSeconds"] = int(life_s)
    pod["spec"]["restartPolicy"] = "Never"
    return pod


async def _started(
    api: Api, namespace: str, name: str, sent_s: float, report: Callable[[str], None]
) -> StartedPod:
    waiting = ""
    while True:
        try:
            raw = await api.get(str(pod_path(namespace, name)))
        except ApiError as error:
            raise MeasuredPodError(f"pod {namespace}/{name} is gone: {error.message}") from None
        except ClusterError:
            raw = {}
        status: Mapping[str, Any] = raw.get("status") or {}
        if raw and has_ended(raw):
            reason = status.get("message") or status.get("reason") or status.get("phase")
            raise MeasuredPodError(f"pod {namespace}/{name} has ended: {reason}")
        if (host := status.get("podIP")) and (grant := _grant(raw)) is not None:
            return StartedPod(f"{namespace}/{name}", host, grant, sent_s, bool(waiting))
        message = unschedulable_text(raw)
        if message and message != waiting:
            waiting = message
            report(f"pod {namespace}/{name} waits: {message}")
        await asyncio.sleep(_POLL_S)


def _grant(raw: Mapping[str, Any]) -> Grant | None:
    try:
        return grant_of(raw)
    except PodError as error:
        raise MeasuredPodError(str(error)) from None


async def neighbour_percent(api: Api, started: StartedPod) -> int | None:
    """Return the GPU share of other pods on the pod's GPU; None: the caller may not list pods."""
    try:
        pods, _ = await list_all(api, PODS, selectors={}, page=PAGE)
    except ClusterError:
        return None
    total = 0
    for raw in pods:
        metadata = raw["metadata"]
        if f"{metadata['namespace']}/{metadata['name']}" == started.name or has_ended(raw):
            continue
        grant = _grant(raw)
        if grant is not None and grant.gpu_uuid == started.grant.gpu_uuid:
            total += 0 if grant.pool == names.POOL_MEMBER else grant.gpu_percent
    return total
