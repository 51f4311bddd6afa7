"""A client that writes any bytes to an HTTP port and reads the status of the answer."""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass

ANSWER_S = 120.0  # then the server counts as hanging
NO_ANSWER_S = 0.3  # a server may wait for the rest of a body that never comes


@dataclass(slots=True)
class HttpPort:
    """One port; a connection is kept while the answers to whole requests allow it."""

    port: int
    tls: ssl.SSLContext | None = None

    async def status(
        self, wire: bytes, *, may_wait: bool = False, half_closed: bool = False
    ) -> int:
        """Send a request on a connection of its own; return the status, 0 where there is none.

        Args:
            wire: the bytes of the request.
            may_wait: the server may rightly wait for more: the client leaves after a while.
            half_closed: the client ends its side after the request.

        Raises:
            TimeoutError: a whole request has no answer.
            OSError: the port refuses the connection.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        status = 0
        try:
            with suppress(ConnectionError):
                writer.write(wire)
                await writer.drain()
                if half_closed and writer.can_write_eof():
                    with suppress(OSError):  # the server has closed the connection
                        writer.write_eof()
                async with asyncio.timeout(NO_ANSWER_S if may_wait else ANSWER_S):
                    status = _status(await reader.readline())
                    while 100 <= status < 200:
                        while (await reader.readline()).strip():
                            pass
                        status = _status(await reader.readline())
        except TimeoutError:
            if not may_wait:
                raise
        finally:
            writer.transport.abort()
        return status


def _status(line: bytes) -> int:
    """Read the status line; 0 for a closed connection, -1 for anything else."""
    parts = line.split(b" ", 2)
    if not line:
        return 0
    if not parts[0].startswith(b"HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
        return -1
    return int(parts[1])
