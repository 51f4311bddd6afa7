"""YAML text to plain values."""

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
    """Text that cannot be parsed as YAML; the message gives the reason in one line."""


def parse_yaml(text: str) -> list[Any]:
    """Parse all documents of a local file; untrusted input needs limits on depth and aliases.

    Raises:
        YamlError: the text is not YAML, or a value does not match its tag.
    """
    try:
        return list(yaml.load_all(text, Loader=_UniqueKeys))
    except yaml.YAMLError as error:
        raise YamlError(_one_line(error)) from None
    except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        # PyYAML does not wrap exceptions of its constructors for dates, numbers and the like.
        raise YamlError(f"a value does not match its type: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
