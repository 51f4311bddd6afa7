"""Documents, nodes and settings as the command line reads them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.environment import from_environment
from scheduler.cli.failure import fail
from scheduler.model.document_reader import Problem, items_of, label, read_documents, with_lines
from scheduler.model.documents import Document
from scheduler.model.message_text import reason_of
from scheduler.model.yaml_parser import YamlError, parse_yaml
from scheduler.settings import Settings

_SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """Documents with their files, the problems found while reading, and the texts of files."""

    documents: list[tuple[str, Document]]
    problems: list[Problem]
    texts: dict[str, str] = field(default_factory=dict)

    def with_lines(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return problems with their lines, as far as the texts have them."""
        located: list[Problem] = []
        for source, group in groupby(problems, key=lambda problem: problem.source):
            of_file, text = list(group), self.texts.get(source)
            located += of_file if text is None else with_lines(of_file, text)
        return located


def read_settings(**overrides: Any) -> Settings:
    """Read the service's settings from the environment; overrides that are not None win."""
    return from_environment(Settings, **overrides)


def read_paths(paths: Iterable[Path]) -> DocumentSet:
    """Read these files, and the YAML and JSON files below these folders."""
    documents = DocumentSet([], [])
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
            if not files:
                message = f"has no file that ends in {', '.join(sorted(_SUFFIXES))}"
                documents.problems.append(Problem(str(path), "the folder", "", message))
        for file in files:
            _read_file(file, documents)
    return documents


def duplicates(documents: DocumentSet) -> list[Problem]:
    """Find names that occur twice: which document would win is undefined."""
    first: dict[str, str] = {}
    problems = []
    for source, document in documents.documents:
        name = label(document)
        if name in first:
            message = f"is in {first[name]} too; keep one"
            problems.append(Problem(source, name, "metadata.name", message))
        first.setdefault(name, source)
    return problems


def read_sound(path: Path) -> list[Document]:
    """Read valid documents from a file or folder; print any problem and exit 1."""
    documents = read_paths([path])
    require_sound(documents)
    return [document for _, document in documents.documents]


def require_sound(documents: DocumentSet, further: Iterable[Problem] = ()) -> None:
    """Print any problem of the documents, and further ones, and exit 1."""
    if problems := documents.with_lines([*documents.problems, *duplicates(documents), *further]):
        fail(*problems)


def read_nodes(path: Path) -> list[Any]:
    """Read the Node documents of a file, or of a List; an unreadable file is a usage error."""
    try:
        raws = parse_yaml(path.read_text(encoding="utf-8"))
        return [item for raw in raws for item in items_of(raw) if item]
    except (OSError, UnicodeDecodeError, YamlError) as error:
        raise typer.BadParameter(f"{path}: {reason_of(error)}") from None


def _read_file(file: Path, into: DocumentSet) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot be read: {reason_of(error)}"
        into.problems.append(Problem(str(file), "the file", "", message))
        return
    documents, problems = read_documents(text, str(file))
    if documents:
        into.texts[str(file)] = text
    into.documents.extend((str(file), document) for document in documents)
    into.problems.extend(problems)
