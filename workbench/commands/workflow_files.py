"""Workflows to run, with the profiles of all their functions."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from scheduler.cli.document_files import DocumentSet, read_paths, require_sound
from scheduler.cli.failure import fail
from scheduler.model.catalogue import Catalogue, missing_profiles
from scheduler.model.documents import Workflow

Sources = Mapping[tuple[str, str], str]
"""Files of workflows by namespace and name."""


def read_workflows(files: Sequence[Path]) -> tuple[DocumentSet, Catalogue, Sources]:
    """Read sound documents with a workflow; print any problem and exit 1."""
    document_set = read_paths(files)
    catalogue = Catalogue.of(document for _, document in document_set.documents)
    sources = {d.key: source for source, d in document_set.documents if isinstance(d, Workflow)}
    require_sound(document_set, missing_profiles(catalogue, sources))
    if not sources:
        fail(f"no Workflow in {', '.join(map(str, files))}; add one")
    return document_set, catalogue, sources
