"""Ports of the test bed's programs."""

from tests.testbed.processes import PORTS, free_port


def test_no_two_calls_return_one_port() -> None:
    """A program listens some time after its port was chosen, and another port meanwhile."""
    ports = [free_port() for _ in range(300)]
    assert len(set(ports)) == len(ports)
    assert set(ports) <= set(PORTS)
