"""Snapshot of all workflows and profiles, with a check that they fit together."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from scheduler.model.document_reader import Problem
from scheduler.model.documents import Document, FunctionProfile, Workflow
from scheduler.model.message_text import listed


class UnknownDocumentError(LookupError):
    """An unknown workflow, stage or profile; the message states the remedy."""


def unknown_profile(function: str) -> UnknownDocumentError:
    """Return the error of a function without a profile."""
    return UnknownDocumentError(
        f"function {function} has no FunctionProfile; create one with that name"
    )


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Workflows by (namespace, name) and profiles by function; immutable."""

    workflows: Mapping[tuple[str, str], Workflow] = field(
        default_factory=lambda: MappingProxyType({})
    )
    profiles: Mapping[str, FunctionProfile] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, documents: Iterable[Document]) -> "Catalogue":
        """Create a catalogue; of documents with the same name the last one counts."""
        workflows: dict[tuple[str, str], Workflow] = {}
        profiles: dict[str, FunctionProfile] = {}
        for document in documents:
            if isinstance(document, Workflow):
                workflows[document.key] = document
            elif isinstance(document, FunctionProfile):
                profiles[document.metadata.name] = document
        return cls(MappingProxyType(workflows), MappingProxyType(profiles))

    def workflow(self, namespace: str, name: str) -> Workflow:
        """Return a workflow, or raise an UnknownDocumentError that lists the known ones."""
        workflow = self.workflows.get((namespace, name))
        if workflow is None:
            names = listed(sorted(n for space, n in self.workflows if space == namespace))
            raise UnknownDocumentError(
                f"workflow {namespace}/{name} is not known (namespace {namespace} has: {names}); "
                "create the Workflow, or correct the name"
            )
        return workflow

    def profile(self, function: str) -> FunctionProfile:
        """Return the profile of a function, or raise an UnknownDocumentError."""
        profile = self.profiles.get(function)
        if profile is None:
            raise unknown_profile(function)
        return profile


def missing_profiles(
    catalogue: Catalogue,
    sources: Mapping[tuple[str, str], str],
    invalid: Collection[str] = (),
) -> list[Problem]:
    """List stages whose function has no profile.

    Args:
        catalogue: valid documents.
        sources: files of the workflows.
        invalid: names of profiles with faults; they are not listed as missing, too.
    """
    return [
        Problem(
            sources.get(workflow.key, "?"),
            f"Workflow {'/'.join(workflow.key)}",
            f"spec.stages[{index}].function",
            f"stage {stage.name!r} runs {stage.function!r}, which has no FunctionProfile",
        )
        for workflow in catalogue.workflows.values()
        for index, stage in enumerate(workflow.spec.stages)
        if stage.function not in catalogue.profiles and stage.function not in invalid
    ]
