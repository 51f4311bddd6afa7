"""JSON files of a known form, with errors that name file, line and column of the wrong entry."""

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import reason_of
from workbench.files.csv_table import file_error

T = TypeVar("T")
_KEY = "[key]"  # pydantic's last step to a key that is wrong itself


def read_json(file: Path, form: TypeAdapter[T]) -> T:
    """Read a file.

    Raises:
        DocumentError: it cannot be read, is no JSON, or has an entry of another form.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise file_error(file, f"cannot be read: {reason_of(error)}") from None
    try:
        return form.validate_json(content)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        steps = [str(step) for step in detail["loc"] if step != _KEY]
        message = ": ".join([*steps, detail["msg"]])
        raise _entry_error(file, content, steps, message) from None


def _entry_error(file: Path, content: bytes, steps: list[str], message: str) -> DocumentError:
    """Return the error for the entry that these steps lead to, or for the whole file."""
    try:
        node = yaml.compose(content, Loader=yaml.SafeLoader)  # JSON is YAML; its nodes have lines
    except yaml.YAMLError:
        node = None  # the message has the place where the JSON ends to be JSON
    if node is None:
        return file_error(file, message)
    mark = node.start_mark
    for step in steps:
        if not isinstance(node, yaml.MappingNode):
            break
        entry = next((pair for pair in node.value if pair[0].value == step), None)
        if entry is None:  # is missing: the place is the object that lacks it
            break
        mark, node = entry[0].start_mark, entry[1]
    place = f"column {mark.column + 1}"
    return DocumentError([Problem(str(file), f"line {mark.line + 1}", place, message)])
