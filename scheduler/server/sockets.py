"""Ports of this process: how they are listened on, and servers that leave the signals alone."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn


class ListenError(Exception):
    """An address cannot be listened on; the message says which, by which settings, and why."""


class SignallessServer(uvicorn.Server):
    """A server that leaves the signals to whoever ends it.

    uvicorn sets its handlers with `signal.signal`: of two in a process the second would take them
    from the first, and one that ends by a signal does not end with status 0.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def listening(
    address: tuple[str, int], variables: str, *, backlog: int | None = None
) -> socket.socket:
    """A socket that listens on host and port; port 0 takes a free one.

    Args:
        address: host and port.
        variables: the settings that say them, for whoever must change them.
        backlog: connections that may wait to be taken; None: Python's own number.

    Raises:
        ListenError: the address is taken, or not this machine's.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=backlog)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ListenError(f"cannot listen on {host} port {port} ({variables}): {reason}") from None


def url_of(listener: socket.socket) -> str:
    """Where plain HTTP is answered on a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
