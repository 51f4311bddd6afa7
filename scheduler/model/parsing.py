"""YAML text to plain values, past what PyYAML does with texts that are made to harm.

libyaml's composer is recursive in C, so a text nested deeply enough ends the process; and aliases
of aliases ("billion laughs") stand for more values than any memory holds. Both are seen in the
parser's events, which cost neither stack nor memory, before anything is made of them.
"""

from typing import Any

import yaml

try:  # the C parser is ten times faster; PyYAML may have been built without it
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_DEPTH_MAX = 100  # Kubernetes' own documents are nested a dozen deep
_VALUES_MAX = 2_000_000  # in one document, an alias counting as all that it stands for


class YamlError(ValueError):
    """The text is no YAML that can be read; the message says why, in one line."""


def parse_yaml(text: str) -> list[Any]:
    """The values of all documents in the text.

    Raises:
        YamlError: it is not YAML, holds a value that is none of its type, or is made to harm.
    """
    try:
        _check(text)
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise YamlError(_one_line(error)) from None
    except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        # PyYAML lets through what the constructors of dates, numbers and the like raise.
        raise YamlError(f"a value is none of its type: {_one_line(error)}") from None


def _check(text: str) -> None:
    document = _Measure()
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.DocumentStartEvent):
            document = _Measure()
        document.take(event)


class _Measure:
    """How deep one document is, and how many values it holds."""

    def __init__(self) -> None:
        self._values = 0
        self._anchored: dict[str, int] = {}  # values that each anchor stands for
        self._open: list[tuple[str | None, int]] = []  # collections: anchor, and values before it

    def take(self, event: yaml.Event) -> None:
        """The next event; raises YAMLError when there is too much of anything."""
        if isinstance(event, yaml.CollectionStartEvent):
            self._open.append((event.anchor, self._values))
            self._add(1)
            if len(self._open) > _DEPTH_MAX:
                raise yaml.YAMLError(f"it is nested more than {_DEPTH_MAX} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self._open.pop()
            if anchor is not None:
                self._anchored[anchor] = self._values - before
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in self._open):
                raise yaml.YAMLError(f"the alias *{event.anchor} stands inside what it stands for")
            self._add(self._anchored.get(str(event.anchor), 1))
        elif isinstance(event, yaml.ScalarEvent):
            self._add(1)

    def _add(self, values: int) -> None:
        self._values += values
        if self._values > _VALUES_MAX:
            raise yaml.YAMLError(f"it holds more than {_VALUES_MAX:,} values, aliases written out")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
