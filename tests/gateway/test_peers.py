"""Connections to the other replicas."""

import asyncio

import pytest

from scheduler.gateway.calls import CallError
from scheduler.gateway.replicas.peers import Peers


class Replica:
    """A replica that knows no workflow.

    Attributes:
        is_left: set when a connection to it is closed.
    """

    def __init__(self):
        self.is_left = asyncio.Event()

    async def answer(self, reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
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
