"""Documents, nodes and settings: where the command line reads them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.environment import from_environment
from scheduler.model.documents import Document, Workflow
from scheduler.model.parsing import YamlError, parse_yaml
from scheduler.model.reading import Problem, read_documents
from scheduler.settings import Settings

_SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """What was read: each document with its file, and what is wrong."""

    documents: list[tuple[str, Document]]
    problems: list[Problem]


def read_settings(**given: Any) -> Settings:
    """The environment's settings, and over them those given; a wrong one ends the command."""
    return from_environment(Settings, **given)


def read_paths(paths: Iterable[Path]) -> DocumentSet:
    """All documents in these files, and in the YAML and JSON files below these folders."""
    found = DocumentSet([], [])
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
            if not files:
                message = f"has no file that ends in {', '.join(sorted(_SUFFIXES))}"
                found.problems.append(Problem(str(path), "the folder", "", message))
        for file in files:
            _read_file(file, found)
    return found


def repeated(found: DocumentSet) -> list[Problem]:
    """The same name twice: which of them would hold is chance."""
    first: dict[tuple[str, str], str] = {}
    problems = []
    for source, document in found.documents:
        name = "/".join(document.key) if isinstance(document, Workflow) else document.metadata.name
        key = document.kind, name
        if key in first:
            message = f"is in {first[key]} too; keep one"
            problems.append(Problem(source, f"{document.kind} {name}", "metadata.name", message))
        first.setdefault(key, source)
    return problems


def read_sound(path: Path) -> list[Document]:
    """The documents of a file or folder; anything wrong is told, and ends the command."""
    found = read_paths([path])
    problems = [*found.problems, *repeated(found)]
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    if problems:
        raise typer.Exit(1)
    return [document for _, document in found.documents]


def read_nodes(path: Path) -> list[Any]:
    """The Node documents of a file, parsed; a file that cannot be read is a usage error."""
    try:
        return [raw for raw in parse_yaml(path.read_text(encoding="utf-8")) if raw]
    except (OSError, UnicodeDecodeError, YamlError) as error:
        raise typer.BadParameter(f"{path}: {error}") from None


def _read_file(file: Path, found: DocumentSet) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"cannot be read: {reason}"
        found.problems.append(Problem(str(file), "the file", "", message))
        return
    documents, problems = read_documents(text, str(file))
    found.documents.extend((str(file), document) for document in documents)
    found.problems.extend(problems)
