"""Open connections of a port: at most so many, divided fairly among client addresses."""

from collections import defaultdict
from typing import Protocol


class Connection(Protocol):
    """A client's connection."""

    @property
    def address(self) -> str:
        """The client's IP address."""

    def is_idle(self) -> bool:
        """Return true if no request is in progress."""

    def abort(self) -> None:
        """Close it at once; `ConnectionTable.remove` follows."""


class ConnectionTable:
    """Connections by client address, in the order of their last use.

    When the table is full, a new client replaces an idle connection of the address that has the
    largest number of them. So a client that opens connections without end closes its own, and the
    kubelet and the API servers always get one.
    """

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._by_address: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, address: str) -> bool:
        """Make room for a connection from this address; false if it must be refused."""
        if self._count < self._connections_max:
            return True
        busiest = max(self._by_address.values(), key=len)
        if len(busiest) <= len(self._by_address.get(address, ())) + 1:
            return False
        idle = next((connection for connection in busiest if connection.is_idle()), None)
        if idle is None:
            return False
        self.remove(idle)
        idle.abort()
        return True

    def add(self, connection: Connection) -> None:
        """Add a connection that was admitted."""
        self._by_address[connection.address][connection] = None
        self._count += 1

    def touch(self, connection: Connection) -> None:
        """Note the use of a connection."""
        connections = self._by_address[connection.address]
        if connection in connections:
            del connections[connection]
            connections[connection] = None

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is closed; once more does nothing."""
        connections = self._by_address.get(connection.address, {})
        if connection in connections:
            del connections[connection]
            self._count -= 1
            if not connections:
                del self._by_address[connection.address]
