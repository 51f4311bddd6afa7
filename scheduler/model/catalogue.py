"""The workflows and profiles known at one moment, and whether they fit together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from scheduler.model.documents import Document, FunctionProfile, Workflow
from scheduler.model.quoting import listed
from scheduler.model.reading import Problem


class UnknownDocumentError(LookupError):
    """A workflow, stage or profile that is not there; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Workflows by (namespace, name), profiles by function; never changed, only replaced."""

    workflows: Mapping[tuple[str, str], Workflow] = field(
        default_factory=lambda: MappingProxyType({})
    )
    profiles: Mapping[str, FunctionProfile] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, documents: Iterable[Document]) -> "Catalogue":
        """A catalogue of these documents; a later one of the same name replaces an earlier one."""
        workflows: dict[tuple[str, str], Workflow] = {}
        profiles: dict[str, FunctionProfile] = {}
        for document in documents:
            if isinstance(document, Workflow):
                workflows[document.key] = document
            else:
                profiles[document.metadata.name] = document
        return cls(MappingProxyType(workflows), MappingProxyType(profiles))

    def workflow(self, namespace: str, name: str) -> Workflow:
        """The workflow, or an UnknownDocumentError that lists what the namespace has."""
        found = self.workflows.get((namespace, name))
        if found is None:
            known = listed(sorted(n for space, n in self.workflows if space == namespace))
            raise UnknownDocumentError(
                f"workflow {namespace}/{name} is not known (namespace {namespace} has: {known}); "
                "create the Workflow, or mend the pod's label"
            )
        return found

    def profile(self, function: str) -> FunctionProfile:
        """The function's profile, or an UnknownDocumentError."""
        found = self.profiles.get(function)
        if found is None:
            raise UnknownDocumentError(
                f"function {function} has no FunctionProfile; create one of that name"
            )
        return found


def missing_profiles(catalogue: Catalogue, sources: Mapping[tuple[str, str], str]) -> list[Problem]:
    """A problem for each stage whose function has no profile; ``sources`` names the files."""
    return [
        Problem(
            sources.get(workflow.key, "?"),
            f"Workflow {'/'.join(workflow.key)}",
            f"spec.stages[{index}].function",
            f"stage {stage.name!r} runs {stage.function!r}, which has no FunctionProfile",
        )
        for workflow in catalogue.workflows.values()
        for index, stage in enumerate(workflow.spec.stages)
        if stage.function not in catalogue.profiles
    ]
