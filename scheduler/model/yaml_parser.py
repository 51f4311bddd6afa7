"""YAML text to plain values."""

from typing import Any

import yaml

from scheduler.model.message_text import quoted

try:  # the C parser is ten times faster; PyYAML may have been built without it
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


class _UniqueKeyLoader(_Loader):
    """A loader that refuses a key that stands twice: YAML does, and PyYAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - of PyYAML
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                identity, line = (key.tag, key.value), key.start_mark.line + 1
                if identity in lines:
                    raise yaml.YAMLError(
                        f"the key {quoted(key.value)} stands in line {lines[identity]} and in line "
                        f"{line}; keep one of them"
                    )
                lines[identity] = line
        return super().construct_mapping(node, deep)


class YamlError(ValueError):
    """Text that cannot be parsed as YAML; the message gives the reason in one line."""


def parse_yaml(text: str) -> list[Any]:
    """Parse all documents of a local file; untrusted input needs limits on depth and aliases.

    Raises:
        YamlError: the text is not YAML, or a value does not match its tag.
    """
    try:
        return list(yaml.load_all(text, Loader=_UniqueKeyLoader))
    except yaml.YAMLError as error:
        raise YamlError(_one_line(error)) from None
    except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        # PyYAML does not wrap exceptions of its constructors for dates, numbers and the like.
        raise YamlError(f"a value does not match its type: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
