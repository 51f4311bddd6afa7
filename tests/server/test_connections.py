"""The table of a port's connections: full, it stays open to addresses with few of them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scheduler.server.connections import ConnectionTable


class FakeConnection:
    def __init__(self, address, *, idle=True):
        self.address = address
        self.idle = idle
        self.aborted = False

    def is_idle(self):
        return self.idle

    def abort(self):
        self.aborted = True


def opened(table, address, *, idle=True):
    """Open a connection; None if it is refused."""
    if not table.admit(address):
        return None
    connection = FakeConnection(address, idle=idle)
    table.add(connection)
    return connection


def test_client_with_few_connections_replaces_one_of_the_client_with_most():
    """The longest idle one of those goes."""
    table = ConnectionTable(3)
    flood = [opened(table, "10.0.0.1") for _ in range(3)]
    table.touch(flood[0])
    assert opened(table, "10.0.0.1") is None
    assert opened(table, "10.0.0.2") is not None
    assert [connection.aborted for connection in flood] == [False, True, False]
    assert len(table) == 3


def test_connection_with_a_request_is_never_replaced():
    """Its client waits for a response."""
    table = ConnectionTable(2)
    busy = [opened(table, "10.0.0.1", idle=False) for _ in range(2)]
    assert opened(table, "10.0.0.2") is None
    assert not any(connection.aborted for connection in busy)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=200))
def test_no_order_of_events_exceeds_the_limit_or_loses_a_connection(events):
    """Open, use and close, in any order: the table has the open ones, at most so many."""
    table, alive = ConnectionTable(5), []
    for address, action in events:
        if action <= 1:
            before = Counter(connection.address for connection in alive)
            connection = opened(table, address)
            alive = [c for c in alive if not c.aborted] + ([connection] if connection else [])
            if connection is None:
                assert before[address] + 1 >= max(before.values())
        elif alive:
            connection = alive[action % len(alive)]
            if action == 2:
                table.touch(connection)
            else:
                table.remove(connection)
                table.remove(connection)
                alive.remove(connection)
        assert len(table) == len(alive) <= 5
