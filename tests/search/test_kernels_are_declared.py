"""A linter over the syntax trees: each kernel declares its signature and its options."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SCHEDULER = Path(__file__).parents[2] / "scheduler"
FORBIDDEN = {"parallel", "fastmath", "forceobj", "looplift"}


def kernels(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """Iterate over the functions of a module with a Numba decorator."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                name = called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)
                if name in {"njit", "jit", "vectorize", "guvectorize", "cfunc", "stencil"}:
                    yield node.name, decorator


def problems(decorator: ast.expr) -> list[str]:
    """List the faults of a kernel's decorator."""
    if not isinstance(decorator, ast.Call):
        return ["has no arguments; give a signature, nogil=True and cache=True"]
    stated = {k.arg: ast.unparse(k.value) for k in decorator.keywords}
    faults = [
        f"must state {name}=True" for name in ("nogil", "cache") if stated.get(name) != "True"
    ]
    if len(decorator.args) != 1:
        faults.append("must have its signature written out")
    return faults + [f"must not use {name}" for name in sorted(FORBIDDEN & set(stated))]


MODULES = [  # the syntax trees of all would take seconds
    path for path in sorted(SCHEDULER.rglob("*.py")) if "numba" in path.read_text(encoding="utf-8")
]
ALL = [
    (f"{path.relative_to(SCHEDULER)}:{name}", decorator)
    for path in MODULES
    for name, decorator in kernels(path)
]


def test_there_are_kernels() -> None:
    """The linter finds kernels."""
    assert len(ALL) > 5


@pytest.mark.parametrize(("name", "decorator"), ALL, ids=[name for name, _ in ALL])
def test_kernel_is_declared(name: str, decorator: ast.expr) -> None:
    """A kernel has a signature, nogil and cache, but neither parallel nor fastmath."""
    assert problems(decorator) == [], name


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("@njit\ndef f(): ...", 1),
        ("@numba.njit(nogil=True)\ndef f(): ...", 2),
        ("@njit('f8(f8)', nogil=True, cache=False)\ndef f(): ...", 1),
        ("@njit('f8(f8)', nogil=True, cache=True, fastmath=True)\ndef f(): ...", 1),
        ("@njit('f8(f8)', nogil=True, cache=True)\ndef f(): ...", 0),
    ],
)
def test_the_linter_sees(tmp_path: Path, code: str, expected: int) -> None:
    """The linter reports incomplete declarations."""
    path = tmp_path / "kernels.py"
    path.write_text(code, encoding="utf-8")
    ((_, decorator),) = kernels(path)
    assert len(problems(decorator)) == expected


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_kernels_call_none_of_another_module(path: Path) -> None:
    """Numba's cache does not notice an edit of a callee in another module and runs stale code."""
    if next(kernels(path), None):
        everywhere = {full.rpartition(":")[2] for full, _ in ALL}
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert not imported & everywhere
