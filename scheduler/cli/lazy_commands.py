"""Commands that are imported when they are called.

The service compiles its kernels, and importing the compiler costs more memory than the whole node
agent. What runs on every node must not pay for what it never calls.
"""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_group


class LazyCommands(TyperGroup):
    """A group that knows its commands by name alone; a subclass says where each one is.

    Help lists every command with its first sentence, so it imports them all.
    """

    places: ClassVar[dict[str, str]]
    """Command to ``module:attribute``, a function or a ``typer.Typer``, in the help's order."""
    hidden_commands: ClassVar[frozenset[str]] = frozenset()
    """Those that the help leaves out."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands(self.places, self.hidden_commands)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names; completion of one asks for no other command."""
        del ctx
        return list(self.commands)


class _Commands(MutableMapping[str, Any]):
    """The commands by name; each is made of its function at the first look at it."""

    def __init__(self, places: dict[str, str], hidden: frozenset[str]) -> None:
        self._places = places
        self._hidden = hidden
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, self._places[name], hidden=name in self._hidden)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError(f"{name}: a command is added to the group's places")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name}: a command is taken from the group's places")


def _made(name: str, place: str, *, hidden: bool) -> Any:
    """Typer's command, made as an application with this command alone makes it."""
    module, attribute = place.split(":")
    found = getattr(import_module(module), attribute)
    alone = typer.Typer(add_completion=False)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name, hidden=hidden)
    else:
        alone.command(name, hidden=hidden)(found)
    return get_group(alone).commands[name]
