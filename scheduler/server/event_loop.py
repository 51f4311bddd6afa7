"""The event loop of a process that serves, and the signals that end it.

It is uvloop, with one of its error messages as a log line.

uvloop may write the rest of a TLS connection to a socket that it has just closed, such as that of
a request that timed out (https://github.com/MagicStack/uvloop/issues/506). The connection ends
as it should, but uvloop reports a fatal error with a traceback, like one of this program.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog
import uvloop

log = structlog.get_logger(__name__)

_TLS_ERROR = "Fatal error on SSL protocol"  # uvloop's words

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run the main coroutine of a process on a new loop; return its result."""
    return uvloop.run(_with_handler(work))


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set from now on, in place of their usual effect."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _with_handler(work: Coroutine[Any, Any, Result]) -> Result:
    asyncio.get_running_loop().set_exception_handler(report_error)
    return await work


def report_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error as asyncio does, unless it is a write to a closed connection."""
    transport = context.get("transport")
    if (
        context["message"] == _TLS_ERROR
        and isinstance(context.get("exception"), RuntimeError)
        and transport is not None
        and transport.is_closing()
    ):
        peer = ":".join(map(str, (transport.get_extra_info("peername") or ())[:2]))
        log.info("connection closed before its last bytes were sent", peer=peer)
    else:
        loop.default_exception_handler(context)
