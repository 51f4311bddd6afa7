"""Replicas of the extender: each life is one process with the real service in it."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from scheduler.cluster.link import LiveCluster
from scheduler.cluster.reflector import Reflector
from scheduler.extender.service import Service
from scheduler.planning.service import PlanningService
from scheduler.server.errors import RefusedError
from scheduler.settings import Settings
from tests.campaign.machines import Machine
from tests.campaign.simulated_server import SimulatedApi, SimulatedServer

# The series of functions end with the last pod of their namespace, and what they have counted with
# them: not in a run, however far its clocks jump.
_SETTINGS = Settings(keep_alive_s=86_400.0)
_PAGE = 4  # objects per page of a list, so that lists have several


class Life:
    """One process of the extender.

    Attributes:
        service: the real one.
        binds: bind calls that came to the binder and have ended.
        lost_binds: bind calls that the death of the process cut short.
    """

    def __init__(
        self, server: SimulatedServer, machine: Machine, name: str, number: int, skew_s: float
    ) -> None:
        self.name = name
        self.skew_s = skew_s
        self.binds = 0
        self.lost_binds = 0
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._machine = machine
        self._random = Random(f"{name} {number}")
        self._clock_rate = Random(f"clock of {name} {number}").uniform(0.85, 1.2)
        self._api: Any = SimulatedApi(server, name)
        self._calls: set[asyncio.Task[Any]] = set()
        link = LiveCluster(
            self._api,
            lease_namespace="esg",
            lease_clock=lambda: self._loop.time() * self._clock_rate,
            reflector=partial(Reflector, random=self._random.random, page=_PAGE),
            monotonic=machine.monotonic_s,
        )
        # Statuses move no pod, and their requests would change the course of every seed.
        link.statuses = None
        self.service = Service(
            PlanningService(
                _SETTINGS,
                link,
                clock=lambda: server.wall_s() + self.skew_s,
                monotonic=machine.monotonic_s,
            )
        )
        self._count_binds()
        self._task = self._loop.create_task(self._run(), context=machine.context)

    def _count_binds(self) -> None:
        bind = self.service.binder.bind

        async def counted(args: Any) -> None:
            try:
                await bind(args)
            except asyncio.CancelledError:
                self.lost_binds += 1
                raise
            except RefusedError:
                self.binds += 1
                raise
            self.binds += 1

        self.service.binder.bind = counted

    async def _run(self) -> None:
        async with self.service.running():
            await asyncio.Event().wait()

    async def call(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a call of kube-scheduler; it goes on if the caller gives up.

        Raises:
            ConnectionError: the process dies meanwhile.
        """
        task = self._loop.create_task(act(), context=self._machine.context)
        self._calls.add(task)
        task.add_done_callback(self._end)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise ConnectionError("the extender died") from None
            raise

    def _end(self, task: "asyncio.Task[Any]") -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()

    @property
    def is_busy(self) -> bool:
        return bool(self._calls)

    def kill(self) -> None:
        """End the process without a word: requests that it has sent remain under way."""
        self._api.kill()
        self._task.cancel()
        for task in self._calls:
            task.cancel()


class Replica:
    """One replica; its process dies and starts again.

    Attributes:
        lives: all of them, the current one last.
        life: the current one; None while it is down.
        machine: machine of the process and of its kube-scheduler.
    """

    def __init__(self, server: SimulatedServer, name: str) -> None:
        self.name = name
        self.machine = Machine(asyncio.get_running_loop())
        self.lives: list[Life] = []
        self.life: Life | None = None
        self._server = server
        self.start()

    def start(self) -> None:
        if self.life is None:
            self.life = Life(self._server, self.machine, self.name, len(self.lives), 0.0)
            self.lives.append(self.life)

    def kill(self) -> None:
        if self.life is not None:
            self.life.kill()
            self.life = None
