"""What a command imports: what runs on every node does not carry the service's compiler."""

import subprocess
import sys
from importlib import import_module

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from scheduler.cli import app

IMPORTED = """
import sys
from scheduler.cli import app
app(sys.argv[1:], standalone_mode=False)
print("imported:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported_by(*command: str) -> set[str]:
    """The top-level modules that are there after the command."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED, *command],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return set(ran.stdout.rpartition("imported:")[2].split())


@pytest.mark.parametrize(
    ("command", "is_spared"),
    [
        (["agent", "--help"], {"numba", "numpy"}),
        (["mps", "--help"], {"numba", "numpy", "kubernetes", "fastapi", "uvicorn", "aiohttp"}),
        (["mps", "check", "--help"], {"numba", "numpy", "kubernetes", "fastapi", "uvicorn"}),
    ],
)
def test_what_runs_on_every_node_imports_little(command, is_spared):
    """The agent and the keeper of the daemons stay small: no compiler, and `mps` no client."""
    modules = imported_by(*command)
    assert "pydantic" in modules  # the command's own module was imported
    assert not modules & is_spared


def test_every_command_is_where_the_group_says():
    """Each name leads to a command of that name with a first sentence for the help."""
    group = get_command(app)
    assert set(group.commands) == set(type(group).places)
    for name, command in group.commands.items():
        assert command.name == name
        assert command.get_short_help_str()
        module, attribute = type(group).places[name].split(":")
        assert hasattr(import_module(module), attribute)


def test_help_lists_every_command_but_the_hidden():
    """`esg --help` imports them all, so that each tells what it does."""
    told = CliRunner().invoke(app, ["--help"]).output
    group = get_command(app)
    for name in group.commands:
        assert (f"│ {name} " in told) is (name not in type(group).hidden_commands)


def test_a_slip_is_answered_with_the_nearest_name():
    """Names are known without their commands."""
    told = CliRunner().invoke(app, ["plaan"])
    assert told.exit_code == 2
    assert "Did you mean 'plan'?" in told.output
