"""Errors of connections in the event loop of a process that serves."""

import asyncio
import logging
import socket

import pytest

from scheduler.server.event_loop import run

TLS_ERROR = "Fatal error on SSL protocol"


async def report_write(message, *, is_closed):
    """Report an error of a connection as uvloop does, that of a write if it is closed."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        transport, protocol = await loop.create_connection(LostConnection, *address)
        error = RuntimeError("a bug")
        if is_closed:
            transport.abort()
            await protocol.lost
            with pytest.raises(RuntimeError, match="the handler is closed") as raised:
                transport.write(b"the rest")
            error = raised.value
        loop.call_exception_handler(
            {"message": message, "exception": error, "transport": transport, "protocol": protocol}
        )
        transport.abort()
        await protocol.lost
    return address


class LostConnection(asyncio.Protocol):
    """A client's connection, with a future of its end."""

    def __init__(self):
        self.lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc):
        """Record the end."""
        self.lost.set_result(exc)


def test_a_write_of_uvloop_to_a_closed_connection_is_one_line(logged, caplog):
    """It says whose connection it was; there is no traceback."""
    host, port = run(report_write(TLS_ERROR, is_closed=True))
    [entry] = logged
    assert (entry["log_level"], entry["peer"]) == ("info", f"{host}:{port}")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("message", "is_closed"), [(TLS_ERROR, False), ("Exception in callback", True)]
)
def test_any_other_error_is_reported_as_by_asyncio(logged, caplog, message, is_closed):
    """Errors on open connections, and errors of callbacks."""
    run(report_write(message, is_closed=is_closed))
    [record] = caplog.records
    assert (record.levelno, record.exc_info[0]) == (logging.ERROR, RuntimeError)
    assert logged == []


def test_the_result_is_the_coroutine_s(logged):
    """The loop is closed then."""

    async def work():
        return asyncio.get_running_loop()

    assert run(work()).is_closed()
    assert logged == []
