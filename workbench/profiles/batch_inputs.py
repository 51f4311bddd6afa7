"""Input tensors of a batch: zeros by the model's metadata, a shape, or the rows of a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scheduler.gateway.scaling.warm_up import NoZerosError, zeros
from scheduler.model.message_text import listed, quoted, reason_of
from scheduler.oip.datatypes import BYTES, DATATYPES
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.tensor import Tensor, TensorPart, row_starts, with_lengths

_SUFFIX = ".npy"
_HALF = "e"  # numpy's code; a JSON body has no half floats, so the protocol's table has none


class InputError(Exception):
    """A batch cannot be composed; the text says why and what to do."""


class BatchInputs:
    """Composes batches of any size.

    Args:
        metadata: the protocol's metadata object of the model.
        sources: inputs by name: a `.npy` file with rows, which are repeated, or the shape of one
            row, as in ``3,224,224``.

    Raises:
        InputError: a file or shape is invalid, an input is unknown, or there is none.
    """

    def __init__(self, metadata: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        entries = metadata.get("inputs")
        described = {
            str(entry["name"]): entry
            for entry in (entries if isinstance(entries, list) else ())
            if isinstance(entry, dict) and "name" in entry
        }
        for name in sources:
            if name not in described:
                raise InputError(
                    f"the model has no input {quoted(name)}; it has "
                    f"{listed([quoted(known) for known in described])}"
                )
        self._rows = {
            name: _read_rows(text) for name, text in sources.items() if text.endswith(_SUFFIX)
        }
        shapes = {name: _shape(text) for name, text in sources.items() if name not in self._rows}
        shapes |= {name: rows.shape[1:] for name, rows in self._rows.items()}
        self._entries = [
            {**entry, "shape": [-1, *shapes[name]]} if name in shapes else entry
            for name, entry in described.items()
        ]
        if not self._entries:
            raise InputError("the model's metadata has no inputs; correct its configuration")

    def batch(self, rows: int, *, binary: bool) -> InferRequest:
        """Return a request with that number of rows, in the form of a client.

        Raises:
            InputError: the metadata describe no such batch.
        """
        zero_entries = [entry for entry in self._entries if entry["name"] not in self._rows]
        try:
            tensors = zeros({"inputs": zero_entries}, rows).inputs if zero_entries else ()
        except NoZerosError as error:
            raise InputError(f"{error}; give it with --input NAME=FILE.npy or NAME=SHAPE") from None
        by_name = {tensor.name: tensor for tensor in tensors}
        inputs = tuple(
            by_name.get(entry["name"]) or self._tensor(entry, rows) for entry in self._entries
        )
        request = InferRequest(None, inputs, (), {}, True, None, None)
        if {tensor.rows for tensor in inputs} != {rows}:
            raise InputError(
                f"the model takes {inputs[0].rows} rows at a time, not {rows}; "
                f"use --batch {inputs[0].rows}, or a model with a batch dimension"
            )
        try:
            return request.in_form(binary=binary)
        except MessageError as error:
            raise InputError(str(error)) from None

    def _tensor(self, entry: Mapping[str, Any], rows: int) -> Tensor:
        name, datatype = entry["name"], DATATYPES.get(str(entry.get("datatype")))
        file_rows = self._rows[name]
        array = np.resize(file_rows, (rows, *file_rows.shape[1:]))  # repeats the rows
        per_row = array[0].size
        if datatype is BYTES and array.dtype.kind in "SU":
            texts = [text.encode() if isinstance(text, str) else text for text in array.flat]
            content = with_lengths(texts)
            part = TensorPart(rows, content, 0, row_starts(content, rows, per_row))
        else:
            code = (datatype and datatype.code) or {"FP16": _HALF}.get(str(entry.get("datatype")))
            if datatype is None or not code or array.dtype.kind not in "biuf":
                remedy = f"its shape instead: --input {name}=SHAPE"
                raise InputError(
                    f"input {quoted(name)} is of {entry.get('datatype')}, the file's values of "
                    f"{array.dtype}; give {'a file of texts' if datatype is BYTES else remedy}"
                )
            content = memoryview(array.astype(f"<{code}").tobytes())
            part = TensorPart(rows, content, per_row * datatype.size_bytes)
        return Tensor(name, datatype, array.shape, (part,), {})


def _read_rows(file: str) -> "np.ndarray[Any, Any]":
    try:
        rows = np.load(Path(file), allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"--input: {file} cannot be read: {reason_of(error)}") from None
    if not isinstance(rows, np.ndarray) or rows.ndim == 0 or rows.size == 0:
        raise InputError(f"--input: {file} has no rows; its first dimension must be the rows")
    return rows


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in text.split(",")) if text else ()
    except ValueError:
        sizes = (0,)
    if min(sizes, default=1) < 1:
        raise InputError(
            f"--input: {quoted(text)} is neither a {_SUFFIX} file nor the shape of one row, as in "
            "3,224,224"
        )
    return sizes
