"""Memory of a body that is received past the parser."""

from collections.abc import Sequence

import numpy as np


class LongBody:
    """A body whose rest the kernel copies to its place.

    Attributes:
        content: whole body, once nothing is missing.
        missing_bytes: number of bytes that have not come.

    Args:
        length: size of the body in bytes.
        pieces: parts of the body that came with the headers.
    """

    __slots__ = ("content", "missing_bytes")

    def __init__(self, length: int, pieces: Sequence[bytes]) -> None:
        # Unlike a bytearray, it is not filled with zeros first.
        self.content: memoryview = np.empty(length, np.uint8).data
        position = 0
        for piece in pieces:
            self.content[position : position + len(piece)] = piece
            position += len(piece)
        self.missing_bytes = length - position

    def buffer(self) -> memoryview:
        """Return the memory of the missing bytes."""
        return self.content[-self.missing_bytes :]
