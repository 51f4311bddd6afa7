"""Imports of a command: help and the node agent must not load the service's compiler."""

import json
import subprocess
import sys
from importlib import import_module

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from scheduler.cli.commands import DESK, app
from scheduler.model.documents import to_manifest
from workbench.profiles.builders import profile

IMPORTS = """
import sys
from scheduler.cli.commands import app
app(sys.argv[1:], standalone_mode=False)
print("imported:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""
WITHOUT_DESK = """
import sys
sys.modules["workbench"] = sys.modules["studies"] = None
from scheduler.cli.commands import app
app()
"""
COMPILER = {"numba", "numpy", "scipy"}
CLIENT = {"kubernetes", "fastapi", "uvicorn", "aiohttp"}


def imported_by(*command: str) -> set[str]:
    """Run the command and return the top-level modules that it imported."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS, *command],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    return set(ran.stdout.rpartition("imported:")[2].split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("scheduler.cli.agent", COMPILER),
        ("scheduler.cli.mps", COMPILER | CLIENT),
    ],
)
def test_commands_of_every_node_import_little(module, spared):
    """The agent imports no compiler, and `esg mps` no client or server either."""
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    modules = {name.partition(".")[0] for name in ran.stdout.split()}
    assert "pydantic" in modules  # the command's own module was imported
    assert not modules & spared


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        pytest.param(["agent", "--help"], marks=pytest.mark.slow),
        pytest.param(["mps", "--help"], marks=pytest.mark.slow),
        pytest.param(["mps", "check", "--help"], marks=pytest.mark.slow),
    ],
)
def test_help_imports_no_command(command):
    """Help imports neither the compiler nor the client."""
    assert not imported_by(*command) & (COMPILER | CLIENT)


def test_help_lists_every_command():
    """`esg --help` lists each command, with help of its own."""
    text = CliRunner().invoke(app, ["--help"]).output
    for name, command in get_command(app).commands.items():
        assert command.name == name
        assert command.get_short_help_str()
        assert f"│ {name} " in text


@pytest.mark.parametrize("package", DESK)
def test_the_table_names_the_commands_of_a_package(package):
    """The names for which an image without the package has a message are its commands."""
    package_app = import_module(f"{package}.commands").app
    assert set(get_command(package_app).commands) == set(DESK[package])


@pytest.mark.slow
@pytest.mark.parametrize("package", DESK)
def test_the_commands_of_a_package_are_imported_by_themselves(package):
    """A test or a script may import a command of a package before the command line."""
    subprocess.run([sys.executable, "-c", f"import {package}.commands"], check=True, timeout=300)


@pytest.mark.slow
def test_the_runtime_works_without_the_desk():
    """A runtime command runs; a command of another package names the extra to install."""
    for arguments, status, message in (
        (["--version"], 0, ""),
        (["plan", "--workflow", "x"], 1, "pip install 'esg-scheduler[workbench]'"),
        (["jobs", "--policy", "x"], 1, "pip install 'esg-scheduler[studies]'"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", WITHOUT_DESK, *arguments],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert ran.returncode == status, ran.stderr
        assert message in ran.stderr


@pytest.mark.parametrize("study", ["jobs", "paper", "colocate"])
def test_a_study_without_its_libraries_names_the_extra(study, monkeypatch):
    """The wheel has the studies' code, and their libraries only with the extra."""
    monkeypatch.setitem(sys.modules, "scipy", None)
    result = CliRunner().invoke(app, [study])
    assert result.exit_code == 1
    assert "run pip install 'esg-scheduler[studies]'" in result.stderr


def test_a_misspelt_command_suggests_the_nearest_name():
    """A typing error is answered with a suggestion."""
    result = CliRunner().invoke(app, ["plaan"])
    assert result.exit_code == 2
    assert "Did you mean 'plan'?" in result.output


@pytest.mark.slow
def test_profiles_are_checked_without_the_compiler(tmp_path):
    """The kernels are imported where a plan is computed, for a workflow with its profiles."""
    document = to_manifest(profile("f", [(1, 1, 100, 9.0)]))
    file = tmp_path / "f.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    assert not imported_by("check", str(file)) & COMPILER
    assert imported_by("check", "deploy/samples") >= COMPILER
