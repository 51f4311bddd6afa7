"""Sockets that listen on all addresses, with and without IPv6."""

import errno
import socket

import pytest

from scheduler.server.sockets import ListenError, listen

HAS_IPV6 = socket.has_dualstack_ipv6()


def is_reached(listener: socket.socket, host: str) -> bool:
    """Return true if a client reaches the listener at the address."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as client:
        client.settimeout(5)
        try:
            client.connect((host, listener.getsockname()[1]))
        except OSError:
            return False
    return True


def test_all_addresses_are_those_of_both_families() -> None:
    """IPv4 clients reach it too; on a machine without IPv6 they alone do."""
    with listen(("::", 0), "") as listener:
        assert is_reached(listener, "127.0.0.1")
        assert is_reached(listener, "::1") == HAS_IPV6


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_without_ipv6_it_listens_on_ipv4(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may lack IPv6, or an administrator may have switched it off."""
    create = socket.create_server

    def without_ipv6(address, *, family=socket.AF_INET, **options):  # type: ignore[no-untyped-def]
        if family == socket.AF_INET6:
            raise OSError(number, "no IPv6")
        return create(address, family=family, **options)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    with listen(("::", 0), "") as listener:
        assert listener.family == socket.AF_INET
        assert is_reached(listener, "127.0.0.1")


def test_a_port_in_use_is_an_error_and_no_reason_for_ipv4() -> None:
    """The message names address, settings and cause."""
    with listen(("::", 0), "") as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ListenError, match=rf"cannot listen on :: port {port} \(VARIABLES\)"):
            listen(("::", port), "VARIABLES")
