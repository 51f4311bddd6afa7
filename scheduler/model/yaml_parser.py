"""YAML text to plain values."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import yaml

try:  # the C parser is ten times faster; PyYAML may have been built without it
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


class _UniqueKeys(_Loader):
    """A loader that refuses a key that a mapping has twice, as the API server does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                problem = f"key {key.value!r} occurs twice in a mapping; keep one"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


class YamlError(ValueError):
    """Text that cannot be parsed as YAML; the message gives the reason in one line.

    Attributes:
        line: number of the line, from 1; 0 if it is not known.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def parse_yaml(text: str) -> list[Any]:
    """Parse all documents of a local file; untrusted input needs limits on depth and aliases.

    Raises:
        YamlError: the text is not YAML, or a value does not match its tag.
    """
    try:
        return list(yaml.load_all(text, Loader=_UniqueKeys))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(filter(None, (error.context, error.problem)))
        if mark and isinstance(error, yaml.scanner.ScannerError) and _has_tab(text, mark.line):
            reason = "a tab indents the line; use spaces"
        raise YamlError(" ".join(reason.split()), mark.line + 1 if mark else 0) from None
    except yaml.YAMLError as error:
        raise YamlError(_one_line(error)) from None
    except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        # PyYAML does not wrap exceptions of its constructors for dates, numbers and the like.
        raise YamlError(f"a value does not match its type: {_one_line(error)}") from None


def _has_tab(text: str, line: int) -> bool:
    """Return true if the line, counted from 0, is indented with a tab."""
    content = "".join(text.splitlines()[line : line + 1])
    return "\t" in content[: len(content) - len(content.lstrip())]


class SourceLines:
    """Lines of the fields of a text that `parse_yaml` takes."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _documents(self) -> list[yaml.Node | None]:
        return list(yaml.compose_all(self._text, Loader=_Loader))

    def line(self, document: int, path: Sequence[str | int]) -> int:
        """Return the number of the line, from 1, of a field, or of the deepest part that is there.

        Args:
            document: number of the document in the text, from 0; it is not empty.
            path: keys and indices of the field.
        """
        node: Any = self._documents[document]
        line: int = node.start_mark.line
        for part in path:
            if isinstance(node, yaml.MappingNode):
                entries = {key.value: (key, value) for key, value in node.value}
                if part not in entries:
                    break
                key, node = entries[part]
                line = key.start_mark.line
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                node = node.value[part]
                line = node.start_mark.line
            else:
                break
        return line + 1


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
