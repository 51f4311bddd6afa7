"""Documents of simulations, and the checks of jobs before the first one starts."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from scheduler.cli.document_files import duplicates, read_paths
from scheduler.model.catalogue import Catalogue, missing_profiles
from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.documents import Document, FunctionProfile, Workflow
from workbench.profiles.generated import FUNCTIONS, generated_profile, samples
from workbench.simulation.runs.job import SimulationJob
from workbench.simulation.scenario_catalogue import shaped


def documents_of(profiles: Path | None) -> list[Document]:
    """Read the documents of a file or folder, which fit together; without one, the samples.

    Raises:
        DocumentError: one is wrong, or a workflow has a stage without profile.
    """
    if profiles is None:
        return [*samples()]
    files = read_paths([profiles])
    documents = [document for _, document in files.documents]
    sources = {d.key: source for source, d in files.documents if isinstance(d, Workflow)}
    problems = [
        *files.problems,
        *duplicates(files),
        *missing_profiles(Catalogue.of(documents), sources),
    ]
    if not sources and not problems:
        message = "holds no Workflow, so there is nothing to simulate"
        problems.append(Problem(str(profiles), "all documents", "", message))
    if problems:
        raise DocumentError(files.with_lines(problems))
    return documents


def generated_functions(documents: Iterable[Document]) -> list[str]:
    """Return the functions whose profiles are those of the samples, which are not measured."""
    functions = {function.name: function for function in FUNCTIONS}
    return sorted(
        document.metadata.name
        for document in documents
        if isinstance(document, FunctionProfile)
        and document.metadata.name in functions
        and document == generated_profile(functions[document.metadata.name])
    )


def checked(jobs: Sequence[SimulationJob], documents: Sequence[Document]) -> list[Problem]:
    """Return the warnings about jobs; raise now for faults that would end a run later.

    Raises:
        DocumentError: a workload does not fit the workflows, or its file is wrong.
        UnknownDocumentError: a document does not exist.
        ScenarioError: a function has no configuration that the cluster could hold.
    """
    catalogue = Catalogue.of(documents)
    workflows = tuple(sorted(catalogue.workflows))
    warnings: dict[Problem, None] = {}
    first = {job.setting: job for job in reversed(jobs)}
    for job in first.values():
        shaped(catalogue, job.scenario, workflows)
        arrivals = job.workload.arrivals(workflows, seed=job.arrivals_seed)
        warnings.update(dict.fromkeys(arrivals.warnings))
    return list(warnings)
