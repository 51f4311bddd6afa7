"""All orders in which requests of two processes that bind pods can reach an API server.

Processes are the real binder and its ownership of the GPUs. Each of their requests waits until a
step lets it arrive, and its answer comes at once: a process does nothing between the arrival and a
later answer that it could not do before it. A run is a sequence of choices among the steps that are
possible; `explore` goes through all sequences.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import structlog

from scheduler.cluster.errors import ApiError, ApiTimeoutError
from scheduler.cluster.link import LiveCluster
from scheduler.cluster.owner_lease import DURATION_S
from scheduler.cluster.resource import trim_pod
from scheduler.extender.bind_ownership import BindOwnership
from scheduler.extender.binding import Binder
from scheduler.extender.binding_voider import BindingVoider
from scheduler.extender.scheduling import Scheduler
from scheduler.extender.wire import ExtenderBindingArgs
from scheduler.model.documents import to_manifest
from scheduler.model.names import ANNOTATION_GPU_PERCENT
from scheduler.planning.metrics import Metrics
from scheduler.planning.state import State
from scheduler.server.errors import RefusedError
from scheduler.settings import Settings
from tests.extender.factories import node, pod, profile
from tests.virtual_loop import run_virtually
from workbench.cluster.api_requests import KINDS, PODS, ApiRequests, ApiTarget
from workbench.cluster.object_store import ObjectStore, Raw, StatusError

Choose = Callable[[int], int]
"""Chooses one of so many steps."""
STEPS_MAX = 60
# A take-over lists by the reflector, as these processes have no watch; no pod vanishes here.
_SETTINGS = Settings(deletion_grace_max_s=0)
_METRICS = Metrics(_SETTINGS.prices)
_PROFILE = to_manifest(profile("large", (60, 100)))
_SETTLE_TURNS = 25  # of the event loop, until a process waits for an answer


class OvercommitError(Exception):
    """Bound pods have more than the GPU; the message is the sequence of steps."""


@dataclass(eq=False)
class PendingRequest:
    """A request that has not arrived; it may, even when its client has given up."""

    number: int
    client: str
    method: str
    path: str
    body: Raw
    answer: "asyncio.Future[Raw]"
    is_delayed: bool = False  # until nothing else can happen


class ChosenApi:
    """The connection of one process, whose requests wait for their step."""

    def __init__(self, cluster: "InterleavedCluster", client: str) -> None:
        self._cluster = cluster
        self._client = client

    async def get(self, path: str, *, timeout_s: float | None = None) -> Raw:
        return await self._send("GET", path, {}, timeout_s)

    async def post(self, path: str, body: Raw, *, timeout_s: float | None = None) -> Raw:
        return await self._send("POST", path, body, timeout_s)

    async def patch(
        self, path: str, body: Raw, *, form: str = "", timeout_s: float | None = None
    ) -> Raw:
        return await self._send("PATCH", path, body, timeout_s)

    async def _send(self, method: str, path: str, body: Raw, timeout_s: float | None) -> Raw:
        if timeout_s is not None and timeout_s <= 0:
            raise ApiTimeoutError("no time left", sent=False)
        answer = asyncio.get_running_loop().create_future()
        number = next(self._cluster.numbers)
        request = PendingRequest(number, self._client, method, path, body, answer)
        self._cluster.pending.append(request)
        return await answer  # type: ignore[no-any-return]


class InterleavedLink(LiveCluster):
    """The link of one process; a list of its pods is one request."""

    def __init__(self, cluster: "InterleavedCluster", name: str, state: State) -> None:
        api: Any = ChosenApi(cluster, name)
        super().__init__(
            api,
            lease_namespace="esg",
            lease_clock=lambda: cluster.lease_s,
            monotonic=state.monotonic,
        )
        self._state = state

    async def relist_pods(self) -> None:
        listed = await self._api.get(PODS)
        self._state.pods.replace(map(trim_pod, listed["items"]))


class BindingProcess:
    """A process that binds the pods in its order, by the cache of its start."""

    def __init__(self, cluster: "InterleavedCluster", name: str, pods: list[str]) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.is_waiting = False  # for the end of another process's Lease
        self._cluster = cluster
        self.state = State(_SETTINGS, _METRICS, clock=loop.time, monotonic=loop.time)
        self.state.nodes.replace([node("n1")])
        self.state.documents.profiles.replace([_PROFILE])
        self.observe(cluster)
        link = InterleavedLink(cluster, name, self.state)
        voider = BindingVoider(self.state, link)
        # Always idle: it acquires the Lease when a call needs it, and never on its own.
        self._ownership = BindOwnership(
            link.owner_lease, voider.take_over, monotonic=count(0, 100).__next__
        )
        self._binder = Binder(self.state, Scheduler(self.state), link, self._ownership, voider)
        self._uids = {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.pods()}
        self.task = loop.create_task(self._bind(pods))
        assert link.owner_lease is not None
        self._owning = loop.create_task(self._ownership._acquire_when_wanted(link.owner_lease))

    def kill(self) -> None:
        """End the process; requests that it has sent remain under way."""
        self.task.cancel()
        self._owning.cancel()

    def observe(self, cluster: "InterleavedCluster") -> None:
        """Take in all pods as they are now."""
        self.state.pods.replace(map(trim_pod, cluster.pods()))

    async def _bind(self, pods: list[str]) -> None:
        for name in pods:
            args = ExtenderBindingArgs(
                PodName=name, PodNamespace="default", PodUID=self._uids[name], Node="n1"
            )
            with suppress(RefusedError):
                await self._binder.bind(args)
            while self._ownership.period is None and self._cluster.pauses:
                self.is_waiting = True
                await self._cluster.time_passed.wait()
                self.is_waiting = False
                with suppress(RefusedError):
                    await self._binder.bind(args)


class InterleavedCluster:
    """One node of one GPU, two pods of 60 %, and two processes.

    Attributes:
        pending: requests that have not arrived.
        lease_s: time by which the processes judge the Lease.
        story: the steps so far.

    Args:
        choose: chooses each step.
        faults: number of steps that are faults: a client gives up, a process dies and starts again,
            a pod changes, a cache becomes current.
        binds: bind calls of each process; they alternate between the pods.
        pauses: how often so much time passes that a Lease ends.
        is_calm: tells if no fault may happen, and no time may pass, while requests are pending.
    """

    def __init__(
        self,
        choose: Choose,
        faults: int,
        binds: int,
        pauses: int,
        is_calm: Callable[[], bool],
    ) -> None:
        self.numbers = count(1)
        self._store = ObjectStore(KINDS, new_uid=lambda: f"uid-{next(self.numbers)}")
        self._requests = ApiRequests(self._store)
        self._choose = choose
        self._faults = faults
        self.pauses = pauses
        self._is_calm = is_calm
        self._binds = binds
        self.lease_s = 0.0
        self.time_passed = asyncio.Event()
        self.pending: list[PendingRequest] = []
        self.story: list[str] = []
        for name in ("p", "q"):
            self._store.create(PODS, pod("large", name=name))
        self._processes = [
            BindingProcess(self, "A", self._order("pq")),
            BindingProcess(self, "B", self._order("qp")),
        ]

    def _order(self, names: str) -> list[str]:
        return [names[number % len(names)] for number in range(self._binds)]

    def pods(self) -> list[Raw]:
        return self._store.list(PODS)

    def granted_percent(self) -> int:
        """Percent of the GPU that bound pods have."""
        return sum(
            int(p["metadata"]["annotations"][ANNOTATION_GPU_PERCENT])
            for p in self.pods()
            if p["spec"].get("nodeName")
        )

    async def play(self) -> None:
        """Take steps until nothing is under way.

        Raises:
            OvercommitError: bound pods have more than the GPU.
        """
        while len(self.story) < STEPS_MAX:
            await self._settle()
            steps = dict(self._arrivals())
            if self.pauses and not (steps and self._is_calm()):
                steps["16 s pass"] = self._pass_time
            if not steps:
                break
            if self._faults and not self._is_calm():
                steps |= dict(self._possible_faults())
            text = list(steps)[self._choose(len(steps))]
            self.story.append(text)
            steps[text]()
            if self.granted_percent() > 100:
                raise OvercommitError("; ".join(self.story))
        for process in self._processes:
            process.kill()

    async def _settle(self) -> None:
        """Run the processes until they wait for answers; pauses between attempts pass."""
        for _ in range(3):
            for _ in range(_SETTLE_TURNS):
                await asyncio.sleep(0)
            busy = [p.name for p in self._processes if not (p.task.done() or p.is_waiting)]
            if busy == [p for p in busy if any(r.client == p for r in self.pending)]:
                return
            await asyncio.sleep(1.0)

    def _arrivals(self) -> Iterator[tuple[str, Callable[[], None]]]:
        prompt = [request for request in self.pending if not request.is_delayed]
        for request in prompt if prompt or self.pauses else self.pending:
            what = f"{request.client} {request.method} {'/'.join(request.path.split('/')[6:])}"
            state = " late" if request.answer.done() else ""
            yield f"{request.number}: {what}{state}", lambda r=request: self._arrive(r)

    def _arrive(self, request: PendingRequest) -> None:
        self.pending.remove(request)
        target = ApiTarget.parse(request.path)
        try:
            if request.method == "GET" and not target.name:
                answer = self._requests.list(target, {})
            else:
                answer = self._requests.object(request.method, target, request.body)
        except StatusError as error:
            if not request.answer.done():
                request.answer.set_exception(ApiError(error.status, error.reason, str(error)))
        else:
            if not request.answer.done():
                request.answer.set_result(answer)

    def _possible_faults(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for request in self.pending:
            if not request.answer.done():
                yield (
                    f"{request.client} gives up {request.number}",
                    lambda r=request: self._give_up(r),
                )
            if not request.is_delayed:
                yield f"{request.number} is delayed", lambda r=request: self._delay(r)
        for number, process in enumerate(self._processes):
            yield f"restart {process.name}", lambda n=number: self._restart(n)
            yield f"{process.name} observes", lambda p=process: self._observe(p)
        for stored in self.pods():
            if not stored["spec"].get("nodeName"):
                name = stored["metadata"]["name"]
                yield f"{name} changes", lambda n=name: self._change(n)

    def _pass_time(self) -> None:
        self.pauses -= 1
        self.lease_s += DURATION_S + 1
        self.time_passed.set()
        self.time_passed = asyncio.Event()

    def _delay(self, request: PendingRequest) -> None:
        self._faults -= 1
        request.is_delayed = True

    def _give_up(self, request: PendingRequest) -> None:
        self._faults -= 1
        request.answer.set_exception(ApiTimeoutError("no answer in time", sent=True))

    def _restart(self, number: int) -> None:
        self._faults -= 1
        old = self._processes[number]
        old.kill()
        for request in self.pending:
            if request.client == old.name and not request.answer.done():
                request.answer.cancel()
        order = self._order("qp" if number == 0 else "pq")
        self._processes[number] = BindingProcess(self, old.name + "'", order)

    def _observe(self, process: BindingProcess) -> None:
        self._faults -= 1
        process.observe(self)

    def _change(self, name: str) -> None:
        self._faults -= 1
        attempt = {"status": {"attempt": len(self.story)}}
        self._store.patch(PODS, ("default", name), attempt)


def play(
    choose: Choose,
    faults: int,
    binds: int = 4,
    *,
    pauses: int = 2,
    is_calm: Callable[[], bool] = lambda: False,
) -> None:
    """Run one sequence of choices."""

    async def run() -> None:
        await InterleavedCluster(choose, faults, binds, pauses, is_calm).play()

    with structlog.testing.capture_logs():
        run_virtually(run())


def explore(faults: int, binds: int = 4, *, pauses: int = 1) -> int:
    """Run all sequences of choices; return their number."""
    prefix: list[int] | None = []
    runs = 0
    while prefix is not None:
        trail: list[tuple[int, int]] = []

        def choose(number: int, prefix: list[int] = prefix, trail: Any = trail) -> int:
            chosen = prefix[len(trail)] if len(trail) < len(prefix) else 0
            trail.append((chosen, number))
            return chosen

        play(choose, faults, binds, pauses=pauses)
        runs += 1
        while trail and trail[-1][0] + 1 == trail[-1][1]:
            trail.pop()
        prefix = [*(chosen for chosen, _ in trail[:-1]), trail[-1][0] + 1] if trail else None
    return runs
