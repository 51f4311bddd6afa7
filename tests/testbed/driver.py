"""Runs workflows as a DAG engine (Argo, Kubeflow) does: a stage's pod follows its predecessors'.

asyncio over aiohttp: it shares two cores with the control plane that it drives, so it must cost
little. Whatever the API server does (away for a while, back again), the run goes on.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from tests.testbed.observations import Observation
from tests.testbed.pod_watch import LONGEST_EVENT_BYTES, RETRY_S, watch_pods
from tests.testbed.pods import PREFIX, function_pod, rfc3339

Json = dict[str, Any]

CLIENTS = 8
"""Pods created at the same time; more gain nothing where two cores serve everything."""
TLS_GOODBYE_S = 0.25
"""A cut watch says goodbye in the background; aiohttp asks to wait before the loop ends."""
REFUSED_FOR_GOOD = {400, 401, 403, 404, 405, 413, 415, 422}


class PodRefusedError(RuntimeError):
    """The API server (or a webhook) refused a pod, and would again."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One request: a walk through all stages of a workflow."""

    workflow: Json
    """A Workflow document."""
    request: str
    """Its name: label `request`, and the start of its pods' names."""
    start_s: float = 0.0
    """When it arrives, in seconds since the run began."""


def instances(workflows: Sequence[Json], count: int, *, interval_s: float = 0.0) -> list[Instance]:
    """`count` instances in all, the workflows taking turns, one every `interval_s` seconds."""
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
    """What a run left behind; it grows while the run goes on."""

    observations: list[Observation] = field(default_factory=list)
    arrived_s: dict[str, float] = field(default_factory=dict)
    """By request."""
    finished_s: dict[str, float] = field(default_factory=dict)
    """By request; one that is missing did not finish."""


@dataclass(kw_only=True)
class _Progress:
    instance: Instance
    arrival: str = ""
    started: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)

    def next_stages(self) -> list[Json]:
        """Stages that may run now and were not started yet; they count as started from here on."""
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
    """Submits instances and follows them.

    A pod that is deleted before it succeeded (evicted, preempted) is created again under its name;
    one that failed by itself is not.

    Args:
        url: the API server's.
        tls: whom to trust and who to be; see `api.tls_context`.
        scheduler_name: on every pod.
        namespace: of every pod.
        resources: requests and limits of every pod; None leaves them to the webhook.
        annotations: on every pod besides `arrival`, such as `{"run-noise": "0.1"}`.
        run: where to record; a caller that wants to look while it runs passes its own.
    """

    def __init__(
        self,
        *,
        url: str,
        tls: ssl.SSLContext,
        scheduler_name: str = "esg-scheduler",
        namespace: str = "default",
        resources: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        run: Run | None = None,
    ) -> None:
        self._url = url
        self._tls = tls
        self._scheduler_name = scheduler_name
        self._namespace = namespace
        self._resources = resources
        self._annotations = dict(annotations or {})
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self.record = run or Run()
        self._progress: dict[str, _Progress] = {}
        self._waiting: asyncio.Queue[Json] = asyncio.Queue()
        self._all_finished = asyncio.Event()
        self._began = 0.0

    async def run(self, instances: Sequence[Instance], *, deadline_s: float) -> Run:
        """Return when all instances have finished, or when `deadline_s` seconds are over.

        Raises:
            PodRefusedError: a pod can never be created.
        """
        self._progress = {each.request: _Progress(instance=each) for each in instances}
        self._began = time.monotonic()
        async with aiohttp.ClientSession(
            self._url,
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=CLIENTS + 1),
            timeout=aiohttp.ClientTimeout(total=10),
            read_bufsize=LONGEST_EVENT_BYTES,
        ) as http:
            tasks = [asyncio.create_task(self._create_waiting(http)) for _ in range(CLIENTS)]
            tasks.append(asyncio.create_task(self._follow(http)))
            tasks.append(asyncio.create_task(self._submit(instances)))
            finished = asyncio.create_task(self._all_finished.wait())
            try:
                await _first_of(finished, tasks, timeout_s=deadline_s)
            finally:
                await http.close()
                await asyncio.sleep(TLS_GOODBYE_S)
        return self.record

    async def _submit(self, instances: Sequence[Instance]) -> None:
        for instance in sorted(instances, key=lambda each: each.start_s):
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
            scheduler_name=self._scheduler_name,
            namespace=self._namespace,
        )

    async def _create_waiting(self, http: aiohttp.ClientSession) -> None:
        while True:
            pod = await self._waiting.get()
            if not await self._is_created(http, pod):
                await asyncio.sleep(RETRY_S)
                self._waiting.put_nowait(pod)

    async def _is_created(self, http: aiohttp.ClientSession, pod: Json) -> bool:
        try:
            async with http.post(self._path, json=pod) as answer:
                said = await answer.text()
                # A server that has just come up says 403 "not yet ready to handle request".
                if answer.status in REFUSED_FOR_GOOD and "not yet ready" not in said:
                    raise PodRefusedError(f"{pod['metadata']['name']}: {answer.status} {said}")
                # 409: a request that was thought lost had arrived, or the name is still in use by
                # a pod that is going away; its DELETED event brings it here again.
                return answer.ok or answer.status == 409
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        selector = f"{PREFIX}/request"
        async for event, pod in watch_pods(http, self._path, label_selector=selector):
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
        return time.monotonic() - self._began


async def _first_of(
    finished: asyncio.Task[bool], tasks: Sequence[asyncio.Task[None]], *, timeout_s: float
) -> None:
    """Wait for the end, the deadline, or a task's error, which is raised; none is left running."""
    everything = [finished, *tasks]
    done, _ = await asyncio.wait(everything, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for task in everything:
        task.cancel()
    await asyncio.gather(*everything, return_exceptions=True)
    for task in done:
        task.result()
