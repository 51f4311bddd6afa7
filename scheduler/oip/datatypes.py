"""Datatypes of the protocol: element sizes, JSON types and value ranges."""

import sys
from typing import Final, NamedTuple

_FP32_MAX: Final = float.fromhex("0x1.fffffep+127")


class Datatype(NamedTuple):
    """One datatype of tensor elements.

    Attributes:
        name: name in the protocol.
        size_bytes: bytes of an element; 0 if every element has its own length (BYTES).
        code: format character of an element in `struct`; empty if there is none.
        json_types: Python types of JSON values; empty if JSON cannot carry the datatype.
        bounds: smallest and largest number; None if the values are no numbers.
    """

    name: str
    size_bytes: int
    code: str = ""
    json_types: frozenset[type] = frozenset()
    bounds: tuple[int, int] | tuple[float, float] | None = None

    @property
    def is_float(self) -> bool:
        return float in self.json_types


def _integer(bits: int, code: str, *, signed: bool) -> Datatype:
    name = f"{'' if signed else 'U'}INT{bits}"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return Datatype(name, bits // 8, code, frozenset({int}), (low, high))


_NUMBER: Final = frozenset({int, float})
BYTES: Final = Datatype("BYTES", 0, json_types=frozenset({str}))
BOOL: Final = Datatype("BOOL", 1, "?", frozenset({bool}))
DATATYPES: Final = {
    datatype.name: datatype
    for datatype in (
        BOOL,
        *(_integer(8 << index, "BHIQ"[index], signed=False) for index in range(4)),
        *(_integer(8 << index, "bhiq"[index], signed=True) for index in range(4)),
        Datatype("FP16", 2),
        Datatype("BF16", 2),
        Datatype("FP32", 4, "f", _NUMBER, (-_FP32_MAX, _FP32_MAX)),
        Datatype("FP64", 8, "d", _NUMBER, (-sys.float_info.max, sys.float_info.max)),
        BYTES,
    )
}
