"""Check names, units and the wording of docstrings.

    python -m tools.naming                  # every Python file that git tracks; part of `make lint`
    python -m tools.naming scheduler/model  # some files or folders, relative to the repository
    python -m tools.naming --count          # counts per rule and top folder only

Prints one line per finding and exits with 1 if there is any. Class names are compared among the
files of the same run, so run it on whole packages for that rule. No finding can be exempted.
"""

import argparse
import ast
import gc
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

OPENINGS = frozenset({"what", "whether", "how", "who", "whoever", "where", "of", "as"})
BANNED_NAMES = frozenset({
    "told", "asked", "made", "found", "given", "kept", "heard", "taken",
    "each", "most", "least", "more", "other", "left",
})  # fmt: skip
# Archaism, as a regular expression, and its plain replacement. A phrase with a plain sense too
# ("at the least loaded node", "the share of late pods") counts only where its clause ends.
_CLAUSE_END = r"""(?=["'.,;:)]|\s+\d)"""
ARCHAISMS = {
    "anew": "again",
    "for ever": "forever, or the condition that ends it",
    "come what may": "always",
    "who(?:so)?ever": "the actor's name",
    f"at the most{_CLAUSE_END}": "at most",
    f"at the least{_CLAUSE_END}": "at least",
    "beside the": "next to, or in addition to",
    "none of ours": "the owner's name",
    "to be had": "available",
    f"of late{_CLAUSE_END}": "recently",
}
UNITS = [
    "ns", "us", "ms", "s", "h", "seconds", "minutes", "hours", "days",
    "bytes", "kib", "mib", "gib", "percent", "dollars", "joules", "watts", "rps", "hz",
    "px", "inches",
    # things counted: a mean or an expected number of them is a float
    "requests", "rows", "pods", "nodes", "gpus", "vcpus", "cores", "containers", "starts",
    "batch_size",
]  # fmt: skip
DIMENSIONLESS = [
    "ratio", "factor", "share", "fraction", "probability", "confidence", "efficiency", "score",
    "weight", "count", "quantile", "percentile", "exponent", "epsilon", "alpha", "beta", "gamma",
    "phi", "sigma", "cv",
]  # fmt: skip
# Names that fit a function of any unit (a statistic, a number format, a coordinate), as whole
# names only: `cost_value` still lacks its unit.
UNIT_FREE = frozenset({"", "value", "number", "mean", "x", "y", "x_error", "y_error"})
# These folders are packages of their own; all others are one runtime package.
DEVELOPMENT_FOLDERS = frozenset({"bench", "helm", "tools"})

_ARCHAISM = re.compile(
    r"\b(?:" + "|".join(f"({phrase})" for phrase in ARCHAISMS).replace(" ", r"(?:\s|#)+") + r")\b",
    re.IGNORECASE,
)
_WITH_UNIT = re.compile(
    rf"(?:^|_)(?:{'|'.join([*UNITS, *DIMENSIONLESS])})$"
    rf"|(?:^|_)(?:{'|'.join(UNITS)}|[a-z]+s)_per_[a-z0-9_]+$"
)
# The field of a syntax node that binds a name.
_BINDING_FIELDS: dict[type[ast.AST], str] = {
    ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.alias: "asname",
    ast.ClassDef: "name", ast.FunctionDef: "name", ast.AsyncFunctionDef: "name",
    ast.ExceptHandler: "name", ast.MatchAs: "name", ast.MatchStar: "name", ast.MatchMapping: "rest",
}  # fmt: skip
_CHECKED = {ast.Module, ast.AnnAssign, *_BINDING_FIELDS}
_FLOAT_WRAPPERS = frozenset({"Optional", "Annotated", "Final", "ClassVar", "InitVar"})


class Finding(NamedTuple):
    """One line of the report."""

    path: Path
    line: int
    rule: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}; {self.remedy}"


class Source:
    """One parsed file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        tree = ast.parse(self.text, str(path))
        self.nodes: list[Any] = [node for node in ast.walk(tree) if type(node) in _CHECKED]
        self.docstrings = [text for node in self.nodes for text in _docstrings(node)]


def _docstrings(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the docstring of a module, class or function, and those of its attributes."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    before: ast.stmt | None = None
    for statement in node.body:
        documented = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
        match statement:
            case ast.Expr(value=ast.Constant(value=str()) as text) if documented:
                yield text
        before = statement


def docstring_openings(source: Source) -> Iterator[Finding]:
    """Find docstrings that open with an indirect question or a fragment."""
    for docstring in source.docstrings:
        word = re.match(r"\W*([^\W_]+)", str(docstring.value))
        if word and word[1].lower() in OPENINGS:
            message = f"a docstring opens with {word[1]!r}"
            remedy = "open with a verb or a noun phrase"
            yield Finding(source.path, docstring.lineno, "docstring-opening", message, remedy)


def _bound_name(node: ast.AST) -> str | None:
    """Name a node binds; of attributes, only those of `self` and `cls` count."""
    match node:
        case ast.Name(ctx=ast.Load() | ast.Del()) | ast.Attribute(ctx=ast.Load() | ast.Del()):
            return None
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attribute):
            return attribute
        case ast.Attribute() | ast.Module() | ast.AnnAssign():
            return None
    name: str | None = getattr(node, _BINDING_FIELDS[type(node)])
    return name


def banned_names(source: Source) -> Iterator[Finding]:
    """Find names that say nothing about the thing they name."""
    path = source.path
    module = path.parent.name if path.stem == "__init__" else path.stem
    bound = ((_bound_name(node), node) for node in source.nodes)
    names = [(module, 1), *((name, node.lineno) for name, node in bound if name)]
    for name, line in names:
        if name.strip("_").lower() in BANNED_NAMES:
            message = f"{name!r} names no thing"
            yield Finding(path, line, "banned-name", message, "use the field's noun")


def is_float(annotation: ast.expr | None) -> bool:
    """Tell if an annotation is `float`, also optional, annotated, final or as a string."""
    match annotation:
        case ast.Name(id="float"):
            return True
        case ast.Constant(value=str(text)):
            return is_float(ast.parse(text, mode="eval").body)
        case ast.BinOp(left=first, op=ast.BitOr(), right=second):
            return is_float(first) or is_float(second)
        case ast.Subscript(value=ast.Name(id=wrapper) | ast.Attribute(attr=wrapper), slice=inner):
            arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if wrapper == "Union":
                return any(map(is_float, arguments))
            return wrapper in _FLOAT_WRAPPERS and is_float(arguments[0])
    return False


def float_units(source: Source) -> Iterator[Finding]:
    """Find parameters, fields, variables and functions of type `float` without a unit."""
    for node in source.nodes:
        match node:
            case (
                ast.arg(arg=str(name), annotation=annotation)
                | ast.AnnAssign(
                    target=ast.Name(id=str(name)) | ast.Attribute(attr=str(name)),
                    annotation=annotation,
                )
                | ast.FunctionDef(name=str(name), returns=annotation)
                | ast.AsyncFunctionDef(name=str(name), returns=annotation)
            ) if is_float(annotation):
                plain = name.strip("_").lower()
                if plain in UNIT_FREE or name.endswith("__") or _WITH_UNIT.search(plain):
                    continue
                message = f"float {name!r} has no unit"
                remedy = "end it with its unit (_ms, _dollars) or kind (_ratio)"
                yield Finding(source.path, node.lineno, "float-unit", message, remedy)


def archaisms(source: Source) -> Iterator[Finding]:
    """Find archaic phrases in docstrings and comments."""
    matches = list(_ARCHAISM.finditer(source.text))
    if not matches:
        return
    prose = {
        line
        for text in source.docstrings
        for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)
    }
    comments = {
        token.start[0]: token.start[1]
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline)
        if token.type == tokenize.COMMENT
    }
    for match in matches:
        line = source.text.count("\n", 0, match.start()) + 1
        column = match.start() - (source.text.rfind("\n", 0, match.start()) + 1)
        if line in prose or (line in comments and comments[line] <= column):
            remedy = list(ARCHAISMS.values())[(match.lastindex or 1) - 1]
            phrase = re.sub(r"[\s#]+", " ", match[0])
            yield Finding(source.path, line, "archaism", repr(phrase), f"write: {remedy}")


def _package(path: Path) -> str:
    """Name the package in which a class name must be unique."""
    return path.parts[0] if path.parts[0] in DEVELOPMENT_FOLDERS else "runtime"


def class_names(sources: Sequence[Source]) -> Iterator[Finding]:
    """Find class names with several definitions, and import aliases that reuse a class name."""
    first: dict[tuple[str, str], str] = {}
    aliases = []
    for source in sources:
        if source.path.parts[0] == "tests":
            continue
        package = _package(source.path)
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                here = f"{source.path}:{node.lineno}"
                place = first.setdefault((package, node.name), here)
                if place != here:
                    message = f"class {node.name!r} is also defined at {place}"
                    yield Finding(source.path, node.lineno, "class-name", message, "rename one")
            elif isinstance(node, ast.alias) and node.asname not in {None, node.name}:
                aliases.append((source.path, node.lineno, str(node.asname)))
    for path, line, name in aliases:
        if defined := first.get((_package(path), name)):
            message = f"alias {name!r} is a class at {defined}"
            yield Finding(path, line, "class-name", message, "use another alias")


FILE_RULES = (docstring_openings, banned_names, float_units, archaisms)


def check(paths: Sequence[Path]) -> list[Finding]:
    """Check files; their paths are relative to the repository."""
    sources = [Source(path) for path in paths]
    findings = [line for source in sources for rule in FILE_RULES for line in rule(source)]
    return sorted([*findings, *class_names(sources)])


def python_files(paths: Sequence[str]) -> list[Path]:
    """List the Python files that git tracks at some paths; at none, all."""
    command = ["git", "ls-files", "-z", "--", *(paths or ["."])]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in listed.split("\0") if name.endswith(".py")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings, then their number per rule."""
    parser = argparse.ArgumentParser(prog="python -m tools.naming", description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--count", action="store_true", help="counts per rule and top folder only")
    options = parser.parse_args(arguments)
    findings = check(python_files(options.paths))
    if options.count:
        folders = Counter((finding.rule, finding.path.parts[0]) for finding in findings)
        for (rule, folder), number in sorted(folders.items()):
            print(f"{rule} {folder} {number}")
    else:
        for finding in findings:
            print(finding)
    for rule, number in sorted(Counter(finding.rule for finding in findings).items()):
        print(f"{rule}: {number}")
    return 1 if findings else 0


if __name__ == "__main__":
    gc.disable()  # syntax trees are many objects without garbage: a third of the run time
    sys.exit(main())
