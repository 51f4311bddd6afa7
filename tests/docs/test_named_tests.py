"""Tests that documents name exist, so that a table of what is tested stays true."""

import ast
import re

from tests.testbed import REPOSITORY

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PAGE = REPOSITORY / "docs" / "testing.md"


def defined(path: str) -> set[str]:
    """Return the names of all functions of a file, those of its classes included."""
    file = REPOSITORY / path
    if not file.is_file():
        return set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_named_tests_exist() -> None:
    """A renamed test must be renamed in every document."""
    unknown = {
        f"{page.relative_to(REPOSITORY)}: {path}::{name}"
        for page in REPOSITORY.glob("docs/**/*.md")
        for path, name in NAMED.findall(page.read_text(encoding="utf-8"))
        if name not in defined(path)
    }
    assert not unknown


def test_what_an_installation_needs_is_named() -> None:
    """The page answers what shows it; each row names a test or says that nothing was run."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## What shows that it installs")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for row in rows:
        assert NAMED.search(row) or "not run" in row, row
