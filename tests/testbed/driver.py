"""A DAG engine (like Argo, Kubeflow): a stage's pod starts when its predecessors succeeded.

asyncio over aiohttp: it shares two cores with the control plane, so it must cost little. A run
continues after an outage of the API server.
"""

import asyncio
import ssl
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from tests.testbed.api import Json
from tests.testbed.observations import Observation
from tests.testbed.pod_watch import LONGEST_EVENT_BYTES, RETRY_S, watch_pods
from tests.testbed.pods import PREFIX, function_pod, rfc3339

PODS = "/api/v1/namespaces/default/pods"
CLIENTS = 8
"""Pods created at the same time; on two cores a higher number gains nothing."""
TLS_CLOSE_S = 0.25
"""aiohttp closes a cut TLS connection in the background; the loop must not end before."""
PERMANENT_REFUSALS = {400, 401, 403, 404, 405, 413, 415, 422}


class PodRefusedError(RuntimeError):
    """The API server (or a webhook) refused a pod permanently."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One request: one execution of all stages of a workflow."""

    workflow: Json
    """A Workflow document."""
    request: str
    """Its name: label `request`, and the prefix of its pods' names."""
    start_s: float = 0.0
    """Arrival in seconds since the start of the run."""


def instances(workflows: Sequence[Json], count: int, *, interval_s: float = 0.0) -> list[Instance]:
    """Create `count` instances of the workflows in turn, one every `interval_s` seconds."""
    return [
        Instance(
            workflow=workflows[number % len(workflows)],
            request=f"{workflows[number % len(workflows)]['metadata']['name']}-{number:04d}",
            start_s=number * interval_s,
        )
        for number in range(count)
    ]


@dataclass(kw_only=True)
class Run:
    """Record of a run; it grows during the run."""

    observations: list[Observation] = field(default_factory=list)
    arrived_s: dict[str, float] = field(default_factory=dict)
    """By request."""
    finished_s: dict[str, float] = field(default_factory=dict)
    """By request; unfinished requests are absent."""


@dataclass(kw_only=True)
class _Progress:
    instance: Instance
    arrival: str = ""
    started: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)

    def next_stages(self) -> list[Json]:
        """Return the stages that may start, and mark them as started."""
        ready = [
            stage
            for stage in self.instance.workflow["spec"]["stages"]
            if stage["name"] not in self.started
            and self.succeeded.issuperset(stage.get("after", ()))
        ]
        self.started.update(stage["name"] for stage in ready)
        return ready

    def is_finished(self) -> bool:
        return len(self.succeeded) == len(self.instance.workflow["spec"]["stages"])


class Driver:
    """Submission and observation of instances.

    A pod that is deleted before it succeeded (evicted, preempted) is created again under its name;
    a pod that failed is not.

    Args:
        url: URL of the API server.
        tls: trusted authority and client certificate; see `api.tls_context`.
        resources: requests and limits of every pod; None leaves them to the webhook.
        annotations: on every pod in addition to `arrival`, such as `{"run-noise": "0.1"}`.
        run: the record; pass one to read it during the run.
    """

    def __init__(
        self,
        *,
        url: str,
        tls: ssl.SSLContext,
        resources: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        run: Run | None = None,
    ) -> None:
        self._url = url
        self._tls = tls
        self._resources = resources
        self._annotations = dict(annotations or {})
        self.record = run or Run()
        self._progress: dict[str, _Progress] = {}
        self._waiting: asyncio.Queue[Json] = asyncio.Queue()
        self._all_finished = asyncio.Event()
        self._began_s = 0.0

    async def run(self, instances: Sequence[Instance], *, deadline_s: float) -> Run:
        """Return when all instances have finished, or after `deadline_s` seconds.

        Raises:
            PodRefusedError: a pod can never be created.
        """
        self._progress = {instance.request: _Progress(instance=instance) for instance in instances}
        self._began_s = time.monotonic()
        async with aiohttp.ClientSession(
            self._url,
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=CLIENTS + 1),
            timeout=aiohttp.ClientTimeout(total=10),
            read_bufsize=LONGEST_EVENT_BYTES,
        ) as http:
            work = [self._create_waiting(http) for _ in range(CLIENTS)]
            try:
                await _first_of(
                    *work, self._follow(http), self._submit(instances), timeout_s=deadline_s
                )
            finally:
                await http.close()
                await asyncio.sleep(TLS_CLOSE_S)
        return self.record

    async def _submit(self, instances: Sequence[Instance]) -> None:
        for instance in sorted(instances, key=lambda instance: instance.start_s):
            await asyncio.sleep(max(0.0, instance.start_s - self._now_s()))
            self._progress[instance.request].arrival = rfc3339(datetime.now(UTC))
            self.record.arrived_s[instance.request] = self._now_s()
            self._enqueue_next(self._progress[instance.request])
        await self._all_finished.wait()

    def _enqueue_next(self, progress: _Progress) -> None:
        for stage in progress.next_stages():
            self._waiting.put_nowait(self._pod(progress, stage["name"]))

    def _pod(self, progress: _Progress, stage: str) -> Json:
        request = progress.instance.request
        return function_pod(
            f"{request}-{stage}",
            workflow=progress.instance.workflow["metadata"]["name"],
            stage=stage,
            request=request,
            annotations={"arrival": progress.arrival, **self._annotations},
            resources=self._resources,
        )

    async def _create_waiting(self, http: aiohttp.ClientSession) -> None:
        while True:
            pod = await self._waiting.get()
            if not await self._is_created(http, pod):
                await asyncio.sleep(RETRY_S)
                self._waiting.put_nowait(pod)

    async def _is_created(self, http: aiohttp.ClientSession, pod: Json) -> bool:
        try:
            async with http.post(PODS, json=pod) as answer:
                text = await answer.text()
                # A server that has just started answers 403 "not yet ready to handle request".
                if answer.status in PERMANENT_REFUSALS and "not yet ready" not in text:
                    raise PodRefusedError(f"{pod['metadata']['name']}: {answer.status} {text}")
                # 409: a request without an answer had arrived, or a terminating pod still has the
                # name; its DELETED event submits this pod again.
                return answer.ok or answer.status == 409
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        selector = f"{PREFIX}/request"
        async for event, pod in watch_pods(http, PODS, label_selector=selector):
            seen = Observation.of(event, pod, at_s=self._now_s())
            progress = self._progress.get(seen.labels["request"])
            if progress is None:
                continue
            self.record.observations.append(seen)
            self._advance(progress, seen)

    def _advance(self, progress: _Progress, seen: Observation) -> None:
        stage = seen.labels["stage"]
        if seen.phase == "Succeeded" and stage not in progress.succeeded:
            progress.succeeded.add(stage)
            self._enqueue_next(progress)
            if progress.is_finished():
                self.record.finished_s[progress.instance.request] = seen.at_s
                if len(self.record.finished_s) == len(self._progress):
                    self._all_finished.set()
        elif seen.event == "DELETED" and stage not in progress.succeeded:
            self._waiting.put_nowait(self._pod(progress, stage))

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s


async def _first_of(*work: Coroutine[Any, Any, None], timeout_s: float) -> None:
    """Wait for the first end, the deadline, or an error, which is raised; cancel the others."""
    tasks = [asyncio.create_task(item) for item in work]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
