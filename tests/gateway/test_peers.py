"""Connections to the other replicas."""

import asyncio
import contextlib

import pytest

from scheduler.gateway.calls import CallError
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.replicas.peers import Peers


class Replica:
    """A replica that knows no workflow.

    Attributes:
        is_called: set when a request has come.
        may_answer: cleared by tests to hold answers back.
        is_left: set when a connection to it is closed.
    """

    def __init__(self):
        self.is_called = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_left = asyncio.Event()

    async def answer(self, reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.is_called.set()
                await self.may_answer.wait()
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        except asyncio.IncompleteReadError:
            self.is_left.set()
        finally:
            writer.close()


async def test_connections_to_a_replica_end_when_it_is_gone():
    """Each new pod has another address, so they would become more with every update."""
    replica = Replica()
    server = await asyncio.start_server(replica.answer, "127.0.0.1", 0)
    peers = Peers(server.sockets[0].getsockname()[1])
    async with server:
        peers.set_hosts({"a": "127.0.0.1", "b": "127.0.0.2"})
        with pytest.raises(CallError):
            await peers.peer("a").metadata("n", "w", None)
        peers.set_hosts({"a": "127.0.0.1"})
        await asyncio.sleep(0)
        assert not replica.is_left.is_set()
        peers.set_hosts({"b": "127.0.0.2"})
        async with asyncio.timeout(60):
            await replica.is_left.wait()
        assert peers.peer("a") is None
    await peers.close()


@contextlib.asynccontextmanager
async def called(replica):
    """Peers without hosts, and a call in flight to a replica that has just been removed."""
    replica.may_answer.clear()
    server = await asyncio.start_server(replica.answer, "127.0.0.1", 0)
    peers = Peers(server.sockets[0].getsockname()[1])
    async with server, asyncio.timeout(60):
        peers.set_hosts({"a": "127.0.0.1"})
        call = asyncio.create_task(peers.peer("a").metadata("n", "w", None))
        await replica.is_called.wait()
        peers.set_hosts({})
        yield peers, call


async def test_a_connection_in_flight_ends_with_its_call():
    """The call to a replica that is gone is answered, and its connection is not kept."""
    replica = Replica()
    async with called(replica) as (_, call):
        replica.may_answer.set()
        with pytest.raises(CallError):
            await call
        await replica.is_left.wait()


async def test_the_end_closes_connections_to_replicas_that_are_gone():
    """A call in flight to one ends with an error."""
    async with called(Replica()) as (peers, call):
        await peers.close()
        with pytest.raises(ModelServerError):
            await call
