"""Listening sockets, and a server that leaves signals alone."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn

_ALL_ADDRESSES = "::"
_NO_IPV6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}  # the kernel has none, or it is switched off


class ListenError(Exception):
    """An address cannot be listened on; the message has the address, its settings and the cause."""


class SignallessServer(uvicorn.Server):
    """A server that does not handle signals.

    uvicorn sets its handlers with `signal.signal`: the second server of a process would replace
    those of the first, and a server that ends by a signal does not exit with status 0.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    @contextlib.asynccontextmanager
    async def running(
        self, listener: socket.socket, on_exit: "Callable[[asyncio.Task[None]], object]"
    ) -> AsyncIterator[None]:
        """Answer on a socket while inside, and close it at the end.

        Args:
            listener: socket that listens.
            on_exit: called with the server's task when it has ended, for any reason.
        """
        serving = asyncio.create_task(self.serve(sockets=[listener]))
        serving.add_done_callback(on_exit)
        try:
            yield
        finally:
            self.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            listener.close()


def listen(
    address: tuple[str, int], variables: str, *, backlog: int | None = None
) -> socket.socket:
    """Open a socket that listens on host and port; port 0 takes a free one.

    Args:
        address: host and port. Host ``::`` stands for all addresses of the machine, IPv4 and IPv6;
            without IPv6 those of IPv4.
        variables: settings of that address, for error messages.
        backlog: number of connections that may wait to be accepted; None: Python's default.

    Raises:
        ListenError: the address is in use, or is not one of this machine's.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if host == _ALL_ADDRESSES:
            return _listen_on_all(port, backlog)
        return socket.create_server(address, family=family, backlog=backlog)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ListenError(f"cannot listen on {host} port {port} ({variables}): {reason}") from None


def _listen_on_all(port: int, backlog: int | None) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                (_ALL_ADDRESSES, port),
                family=socket.AF_INET6,
                dualstack_ipv6=True,
                backlog=backlog,
            )
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server(("", port), backlog=backlog)


def source_of(transport: asyncio.BaseTransport) -> str:
    """Return the IP address of a connection's other end; empty for one without addresses.

    An IPv4 address looks the same on a socket that takes IPv4 and IPv6.
    """
    peer = transport.get_extra_info("peername")
    return str(peer[0]).removeprefix("::ffff:") if peer else ""


def url_of(listener: socket.socket) -> str:
    """URL of plain HTTP on a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
