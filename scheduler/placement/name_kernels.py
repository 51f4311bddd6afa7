"""The kernels of node names: a hash table of them, and a list of names in JSON that is looked up.

A call of kube-scheduler names thousands of nodes. As strings of Python, each is created, hashed and
compared several times.
"""

import numpy as np
from numba import i8, njit, void

from scheduler.placement.array_types import INT64_ARRAY, NAMES_TYPE, UINT8_ARRAY
from scheduler.placement.arrays import Int64Array, NameArrays, Uint8Array

_QUOTE, _BACKSLASH, _COMMA, _END_OF_LIST, _END_OF_OBJECT = map(ord, '"\\,]}')
_SPACE = ord(" ")  # and below it the control characters, which no string has
_WHITE_SPACE = tuple(map(ord, " \t\n\r"))
_FNV_PRIME = 0x01000193


@njit(i8(i8, i8), nogil=True, cache=True)
def add_to_hash(hashed: int, character: np.int64) -> int:
    """Return the hash (FNV-1a) of a text with one more character."""
    return int((hashed ^ character) * _FNV_PRIME & 0x7FFFFFFF)


@njit(void(NAMES_TYPE, INT64_ARRAY), nogil=True, cache=True)
def index_names(names: NameArrays, rows: Int64Array) -> None:
    """Enter these rows into the empty table."""
    mask = names.slots.shape[0] - 1
    for row in rows:
        hashed = 0
        for i in range(names.begins[row], names.ends[row]):
            hashed = add_to_hash(hashed, np.int64(names.text[i]))
        slot = hashed & mask
        while names.slots[slot] >= 0:
            slot = (slot + 1) & mask
        names.slots[slot] = row


@njit(i8(NAMES_TYPE, UINT8_ARRAY, i8, i8, i8), nogil=True, cache=True)
def find_name(names: NameArrays, text: Uint8Array, begin: int, end: int, hashed: int) -> int:
    """Return the row of the name in this part of a text; -1 where it is unknown."""
    mask = names.slots.shape[0] - 1
    slot = hashed & mask
    while names.slots[slot] >= 0:
        row = names.slots[slot]
        first = names.begins[row]
        if names.ends[row] - first == end - begin:
            i = begin
            while i < end and text[i] == names.text[first + i - begin]:
                i += 1
            if i == end:
                return int(row)
        slot = (slot + 1) & mask
    return -1


@njit(i8(UINT8_ARRAY, i8), nogil=True, cache=True)
def skip_spaces(text: Uint8Array, i: int) -> int:
    """Return the position of the next character that is no white space of JSON."""
    while i < text.shape[0] and text[i] in _WHITE_SPACE:
        i += 1
    return i


@njit(i8(NAMES_TYPE, UINT8_ARRAY, i8, INT64_ARRAY), nogil=True, cache=True)
def find_names(names: NameArrays, text: Uint8Array, start: int, rows: Int64Array) -> int:
    """Return the number of names in the JSON list that is last in an object; -1 where in doubt.

    In doubt is every text that is not plain: a name that is unknown, given twice or escaped, and
    anything but the end of the object after the list.

    Args:
        names: known names.
        text: text of the object.
        start: position after the opening bracket of the list.
        rows: (rows of the table,) written: the row of each name.
    """
    is_known_already = np.zeros(rows.shape[0], np.bool_)
    count = 0
    i = skip_spaces(text, start)
    is_empty = i < text.shape[0] and text[i] == _END_OF_LIST
    while not is_empty:
        if i >= text.shape[0] or text[i] != _QUOTE:
            return -1
        i += 1
        begin = i
        hashed = 0
        while (
            i < text.shape[0] and text[i] >= _SPACE and text[i] != _QUOTE and text[i] != _BACKSLASH
        ):
            hashed = add_to_hash(hashed, np.int64(text[i]))
            i += 1
        if i >= text.shape[0] or text[i] != _QUOTE:
            return -1
        row = find_name(names, text, begin, i, hashed)
        if row < 0 or is_known_already[row]:
            return -1
        is_known_already[row] = True
        rows[count] = row
        count += 1
        i = skip_spaces(text, i + 1)
        if i >= text.shape[0] or text[i] != _COMMA:
            break
        i = skip_spaces(text, i + 1)
    if i >= text.shape[0] or text[i] != _END_OF_LIST:
        return -1
    i = skip_spaces(text, i + 1)
    if i >= text.shape[0] or text[i] != _END_OF_OBJECT:
        return -1
    return count if skip_spaces(text, i + 1) == text.shape[0] else -1
