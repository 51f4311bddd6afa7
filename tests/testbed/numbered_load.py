"""Requests through gateways while steps of a test run; each carries its own number."""

import asyncio
import itertools
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import aiohttp

from tests.testbed.api import Json, wait_until

CLIENTS = 4
ANSWERS = 100
TIMEOUT_S = 300
"""A request may wait for the start of its pod, on a busy machine."""
PAUSE_S = 0.1  # after a request without an answer


class Target(Protocol):
    """Address of a gateway, and what became of the requests there.

    Attributes:
        outcomes: statuses; None: the connection has failed.
    """

    url: str
    outcomes: list[int | None]


class NumberedLoad:
    """Clients of workflow `w`, whose answer `y` is twice the number `x` of the request.

    A request that gets neither an answer nor an error of its connection fails the test.

    Args:
        targets: gateways, each with clients of its own.
        clients: number of clients of each, which send one request at a time.
        headers: headers of the requests.
        context: trusted authority; None without TLS.

    Attributes:
        sent: number of requests.
        wrong: answers to another request.
        errors: answers of other statuses than 200.
    """

    def __init__(
        self,
        targets: Iterable[Target],
        *,
        clients: int = CLIENTS,
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._targets = list(targets)
        self._clients = clients
        self._headers = headers
        self._context = context
        self._is_over = asyncio.Event()
        self._numbers = itertools.count()
        self.sent = 0
        self.wrong: list[Json] = []
        self.errors: list[Json] = []

    @property
    def outcomes(self) -> Sequence[int | None]:
        """Outcomes of all targets."""
        return [status for target in self._targets for status in target.outcomes]

    async def run(self, steps: Callable[[], None]) -> None:
        """Send requests until steps, which run in a thread, are done."""
        connector = aiohttp.TCPConnector(ssl=self._context or True)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self._headers
        ) as http:
            clients = [
                asyncio.create_task(self._client(http, target))
                for target in self._targets
                for _ in range(self._clients)
            ]
            try:
                await asyncio.to_thread(steps)
            finally:
                self._is_over.set()
                await asyncio.gather(*clients)

    async def _client(self, http: aiohttp.ClientSession, target: Target) -> None:
        while not self._is_over.is_set():
            self.sent += 1
            status = await self._call(http, target)
            target.outcomes.append(status)
            if status is None:
                await asyncio.sleep(PAUSE_S)

    async def _call(self, http: aiohttp.ClientSession, target: Target) -> int | None:
        number = next(self._numbers)
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [number]}
        url = f"{target.url}/v2/models/w/infer"
        try:
            async with http.post(url, json={"inputs": [tensor]}) as answer:
                content = await answer.json(content_type=None)
        except aiohttp.ClientError:
            return None
        if answer.status == 200:
            outputs = {output["name"]: output["data"] for output in content["outputs"]}
            if outputs["y"] != [2 * number]:
                self.wrong.append(content)
        else:
            self.errors.append(content)
        return answer.status


def until_answered(targets: Iterable[Target], *, count: int = ANSWERS) -> None:
    """Wait until each of these targets has answered further requests."""
    goals = [(target, target.outcomes.count(200) + count) for target in targets]
    for target, goal in goals:
        wait_until(
            lambda target=target, goal=goal: target.outcomes.count(200) >= goal,
            what=f"{target.url} has answered",
        )
