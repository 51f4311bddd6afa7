"""Names of the nodes of a call, and their rows in the fleet."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from scheduler.kernel_calls import entry_point
from scheduler.placement import name_kernels
from scheduler.placement.arrays import BoolArray, Int64Array, NameArrays

_SLOTS_PER_NAME = 4
_find_names = entry_point(name_kernels.find_names)


class NameIndex:
    """Names of the nodes of a fleet, for look-ups without strings.

    A fleet has another index after each change of its rows, so one index stands for one layout.

    Attributes:
        names: (rows,) names by row; None: no node.
    """

    def __init__(self, node_row: Mapping[str, int], row_count: int) -> None:
        self.names: NDArray[np.object_] = np.full(row_count, None, object)
        rows = np.fromiter(node_row.values(), np.int64, len(node_row))
        self.names[rows] = list(node_row)
        # Names in Kubernetes are ASCII. Any other one has a row, too, but not by bytes.
        indexed = {name: row for name, row in node_row.items() if name.isascii()}
        indexed_rows = np.fromiter(indexed.values(), np.int64, len(indexed))
        ends = np.cumsum(np.fromiter(map(len, indexed), np.int64, len(indexed)), dtype=np.int64)
        self._arrays = NameArrays(
            text=np.frombuffer("".join(indexed).encode(), np.uint8),
            begins=np.zeros(row_count, np.int64),
            ends=np.zeros(row_count, np.int64),
            slots=np.full(1 << (_SLOTS_PER_NAME * len(indexed)).bit_length(), -1, np.int32),
        )
        self._arrays.begins[indexed_rows[1:]] = ends[:-1]
        self._arrays.ends[indexed_rows] = ends
        name_kernels.index_names(self._arrays, indexed_rows)

    def find(self, text: bytes, start: int) -> Int64Array | None:
        """Return the rows of the names in a list of JSON; None where `find_names` is in doubt."""
        rows: Int64Array = np.empty(len(self.names), np.int64)
        characters = np.frombuffer(text, np.uint8)
        count = _find_names(self._arrays, characters, start, rows)
        return None if count < 0 else rows[:count]


class IndexedFleet(Protocol):
    """A fleet, as far as names are concerned."""

    @property
    def index(self) -> NameIndex: ...
    def rows(self, names: Sequence[str]) -> Int64Array: ...


class NodeNames(Sequence[str]):
    """Distinct names of nodes in the order of a call.

    Those of rows are looked up when they are read: few of a call's names are in its answer.
    """

    def __init__(self, names: Sequence[str]) -> None:
        array: NDArray[np.object_] = np.empty(len(names), object)
        array[:] = names
        self._array: NDArray[np.object_] | None = array  # None: the names of `_rows`
        self._index: NameIndex | None = None
        self._rows: Int64Array = np.empty(0, np.int64)  # in the layout of the index

    @classmethod
    def of(cls, names: Sequence[str]) -> "NodeNames":
        """Return names as such."""
        return names if isinstance(names, cls) else cls(names)

    @classmethod
    def of_rows(cls, index: NameIndex, rows: Int64Array) -> "NodeNames":
        """Return the names of rows."""
        names = cls(())
        names._array, names._index, names._rows = None, index, rows
        return names

    @property
    def _names(self) -> NDArray[np.object_]:
        if self._array is None:
            assert self._index is not None  # noqa: S101 - `of_rows` has set it
            self._array = self._index.names[self._rows]
        return self._array

    def rows(self, fleet: IndexedFleet) -> Int64Array:
        """Return the row of each node in a fleet, -1 where it is not known."""
        if self._index is not fleet.index:
            names = self._names.tolist()
            self._index, self._rows = fleet.index, fleet.rows(names)
        return self._rows

    def at(self, indices: Int64Array | BoolArray) -> list[str]:
        """Return the names at these indices, or where a mask is true."""
        return list(self.part(indices))

    def part(self, indices: Int64Array | BoolArray) -> "NodeNames":
        """Return the nodes at these indices, or where a mask is true."""
        if self._array is None and self._index is not None:
            return NodeNames.of_rows(self._index, self._rows[indices])
        return NodeNames(self._names[indices].tolist())

    def __len__(self) -> int:
        return len(self._rows if self._array is None else self._array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: Any) -> Any:
        names = self._names[index]
        return names.tolist() if isinstance(index, slice) else names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names.tolist())
