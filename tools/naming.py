"""Check names and docstrings as far as ruff does not; part of `make lint`: python -m tools.naming.

A class name occurs once outside tests, a name is that of a thing, and a docstring opens with a verb
or a noun. Prints what is otherwise and where; the exit status is 1 then.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

BANNED = {
    *("told", "asked", "made", "found", "given", "kept", "heard", "taken"),
    *("each", "most", "least", "more", "other", "left"),
}
OPENING = re.compile(r"\W*(what|whether|how|who|whoever|where|of|as)\b", re.IGNORECASE)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def bound_name(node: ast.AST) -> str:
    """Return the name that a node binds, if any."""
    match node:
        case (
            ast.Name(id=str(name), ctx=ast.Store())
            | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=str(name), ctx=ast.Store())
            | ast.arg(arg=str(name))
            | ast.alias(asname=str(name))
            | ast.ClassDef(name=str(name))
            | ast.FunctionDef(name=str(name))
            | ast.AsyncFunctionDef(name=str(name))
        ):
            return name
    return ""


def findings(paths: Iterable[Path]) -> Iterator[str]:
    """Check files, whose paths are relative to the repository."""
    classes = defaultdict(list)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            name = bound_name(node)
            if not name and not isinstance(node, ast.Module):
                continue
            place = f"{path}:{getattr(node, 'lineno', 1)}"
            if name.strip("_").lower() in BANNED:
                yield f"{place}: {name!r} is not the name of a thing; use the field's noun"
            text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
            if opening := OPENING.match(text or ""):
                yield f"{place}: a docstring opens with {opening[1]!r}; use a verb or a noun"
            if isinstance(node, ast.ClassDef) and path.parts[0] != "tests":
                classes[name].append(place)
    for name, places in classes.items():
        if len(places) > 1:
            yield f"class {name!r} is defined at {' and '.join(places)}; rename all but one"


def tracked_paths() -> Iterator[Path]:
    """Yield the tracked files of Python; a deletion may not be staged yet."""
    listed = subprocess.check_output(["git", "ls-files", "*.py"], text=True)  # noqa: S607
    return filter(Path.exists, map(Path, listed.splitlines()))


if __name__ == "__main__":
    sys.exit("\n".join(findings(tracked_paths())) or 0)
