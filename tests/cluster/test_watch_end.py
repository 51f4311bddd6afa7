"""The end of a watch's connection."""

import asyncio
import ssl

import psutil

from scheduler.cluster.api import connect
from tests.testbed import kubeconfig
from tests.testbed.pki import Authority

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"


async def test_a_watch_that_ends_does_not_wait_for_the_server(tmp_path):
    """A server that is gone does not answer the end of TLS, and the process may end at once."""
    authority = Authority(tmp_path)
    served = authority.server("server", ())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served.certificate, served.key)
    writers = []

    async def watched(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        writer.write(ANSWER)
        writers.append(writer)

    async with await asyncio.start_server(watched, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        config = kubeconfig.write(
            tmp_path / "kubeconfig",
            url=f"https://127.0.0.1:{port}",
            ca=authority.certificate,
            certificate=authority.client("client", "client", ()),
        )
        async with connect(config) as api:
            async with api.stream("/watch", query={}, silence_s=60) as lines:
                assert await anext(lines) == b"{}"
            for _ in range(10):
                await asyncio.sleep(0)
            assert not connections_to(port)
        for writer in writers:
            writer.transport.abort()


def connections_to(port):
    sockets = psutil.Process().net_connections()
    return [
        connection for connection in sockets if connection.raddr and connection.raddr.port == port
    ]
