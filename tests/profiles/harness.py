"""Played model servers in a thread, for commands that run an event loop of their own."""

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread

from tests.gateway.grpc_player import GrpcPlayer
from workbench.cluster.model_server import PlayedModelServer


@dataclass
class TimedServer(PlayedModelServer):
    """A played server whose time grows with the rows.

    Attributes:
        times_ms: times that it took for runs, by rows.
    """

    times_ms: dict[int, list[float]] = field(default_factory=dict)

    async def spend_time(self, rows):
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        await super().spend_time(rows)
        self.times_ms.setdefault(rows, []).append(1000 * (loop.time() - begin_s))


@contextmanager
def in_thread(serving):
    """Keep an asynchronous context open in a thread; yields what it yields."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    def wait(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout=60)

    async def leave():
        await serving.__aexit__(None, None, None)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    try:
        yield wait(serving.__aenter__())
        wait(leave())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def http_server(**fields):
    """Serve by HTTP; yields the server."""
    server = TimedServer(**fields)
    with in_thread(server.serving()):
        yield server


@contextmanager
def grpc_server():
    """Serve by gRPC; yields the player and its port."""
    player = GrpcPlayer()
    with in_thread(player.serve()) as port:
        yield player, port
