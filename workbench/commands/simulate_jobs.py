"""What ``esg simulate`` is asked for, as jobs that are known to be sound."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.reading import duplicates, read_paths
from scheduler.model.catalogue import Catalogue, missing_profiles
from scheduler.model.documents import Document, FunctionProfile, Workflow
from scheduler.model.parsing import YamlError, parse_yaml
from scheduler.model.quoting import listed, quoted
from scheduler.model.reading import DocumentError, Problem, read_documents
from workbench.profiles.generated import FUNCTIONS, generated_profile, sample_documents
from workbench.simulation.registry import policy_class, policy_names
from workbench.simulation.runs.job import Job
from workbench.simulation.scenario import Scenario
from workbench.simulation.scenario_catalogue import shaped
from workbench.simulation.workloads.paper import SETTINGS, Paper
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.registry import parse_workload
from workbench.simulation.workloads.requests import Requests

ALL = "all"
_SETTING = "moderate-normal"
_REQUESTS = 10_000


@dataclass(frozen=True, slots=True)
class RequestedSetting:
    """One setting: the SLOs' factor, and when requests arrive."""

    name: str
    slo_factor: float
    workload: Workload

    def requests(self, wanted: int | None) -> int | None:
        """How many a run, where nothing is said; None: as many as there are."""
        return wanted or (None if isinstance(self.workload, Requests) else _REQUESTS)


# -- documents


def documents_of(profiles: Path | None) -> list[Document]:
    """The documents there, which fit together, or else the samples.

    Raises:
        DocumentError: one is wrong, or a workflow has a stage without profile.
    """
    if profiles is None:
        read = [read_documents(text, name) for name, text in sample_documents().items()]
        return [document for documents, _ in read for document in documents]
    found = read_paths([profiles])
    documents = [document for _, document in found.documents]
    sources = {d.key: source for source, d in found.documents if isinstance(d, Workflow)}
    problems = [
        *found.problems,
        *duplicates(found),
        *missing_profiles(Catalogue.of(documents), sources),
    ]
    if not sources and not problems:
        message = "holds no Workflow, so there is nothing to ask for"
        problems.append(Problem(str(profiles), "all documents", "", message))
    if problems:
        raise DocumentError(problems)
    return documents


def generated_functions(documents: Iterable[Document]) -> list[str]:
    """The functions whose profiles are those of the samples, which nobody has measured."""
    samples = {function.name: function for function in FUNCTIONS}
    return sorted(
        each.metadata.name
        for each in documents
        if isinstance(each, FunctionProfile)
        and each.metadata.name in samples
        and each == generated_profile(samples[each.metadata.name])
    )


def profiled_models(documents: Iterable[Document]) -> set[str]:
    """The GPU models that every function has been profiled on; or else those that any has."""
    models = [
        {gpu.model for gpu in each.spec.gpus}
        for each in documents
        if isinstance(each, FunctionProfile)
    ]
    return set.intersection(*models) or set.union(*models) if models else set()


# -- settings


def settings_of(
    names: str | None,
    *,
    trace: Path | None,
    workload: str | None,
    parameters: Path | None,
    slo_factor: float | None,
) -> list[RequestedSetting]:
    """The settings by name, or the one that a trace or another workload makes.

    Raises:
        DocumentError: workload or parameters are wrong.
    """
    if trace is not None and workload is not None:
        raise typer.BadParameter("not with --workload: a trace is one", param_hint="--trace")
    if trace is None and workload is None:
        for value, option in ((parameters, "--workload-parameters"), (slo_factor, "--slo-factor")):
            if value is not None:
                raise typer.BadParameter("goes with --workload or --trace", param_hint=option)
        return [_of_the_paper(name) for name in _setting_names(names or _SETTING)]
    if names is not None:
        message = "a setting names the paper's load; with another workload give --slo-factor"
        raise typer.BadParameter(message, param_hint="--setting")
    given = _parameters(parameters)
    factor = 1.0 if slo_factor is None else slo_factor
    if trace is not None:
        made = parse_workload(Requests.name, {**given, "file": str(trace)}, "--trace")
        return [RequestedSetting(trace.name, factor, made)]
    made = parse_workload(workload or "", given, str(parameters or "--workload"))
    return [RequestedSetting(made.name, factor, made)]


def _setting_names(text: str) -> list[str]:
    names = list(SETTINGS) if text == ALL else names_in(text, "--setting")
    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        known = listed(list(SETTINGS))
        message = f"{quoted(unknown[0])} is unknown; it is one of {known}"
        raise typer.BadParameter(message, param_hint="--setting")
    return names


def _of_the_paper(name: str) -> RequestedSetting:
    setting = SETTINGS[name]
    return RequestedSetting(name, setting.slo_factor, Paper(load=setting.load))


def _parameters(file: Path | None) -> Mapping[str, Any]:
    if file is None:
        return {}
    try:
        found = [each for each in parse_yaml(file.read_text(encoding="utf-8")) if each is not None]
    except (OSError, UnicodeDecodeError, YamlError) as error:
        raise DocumentError([Problem(str(file), "the file", "", str(error))]) from None
    if not found:
        return {}
    if len(found) > 1 or not isinstance(found[0], Mapping):
        message = "must be one mapping of parameters"
        raise DocumentError([Problem(str(file), "the file", "", message)])
    return found[0]


# -- jobs


def names_in(text: str, option: str) -> list[str]:
    """What stands between the commas, each once; nothing at all is a usage error."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise typer.BadParameter(f"{quoted(text)} names nothing", param_hint=option)
    return names


def jobs_of(
    *,
    policies: str,
    settings: Sequence[RequestedSetting],
    seeds: str,
    scenario: Scenario,
    requests: int | None,
    out: Path | None,
    trace_requests: int,
) -> list[Job]:
    """A job for each policy under each setting from each seed; the first seed's have a trace.

    Raises:
        UnknownPolicyError: there is no such policy.
    """
    names = policy_names() if policies == ALL else names_in(policies, "--policy")
    for name in names:
        policy_class(name)
    return [
        Job(
            policy=name,
            setting=asked.name,
            seed=seed,
            scenario=replace(scenario, slo_factor=asked.slo_factor),
            workload=asked.workload,
            requests=asked.requests(requests),
            folder=None if out is None else out / "runs" / f"{name}-{asked.name}-{seed}",
            trace_requests=0 if number else trace_requests,
        )
        for asked in settings
        for name in names
        for number, seed in enumerate(_seeds(seeds))
    ]


def checked(jobs: Sequence[Job], documents: Sequence[Document]) -> list[Problem]:
    """What to know of the jobs before they begin; what would end them half-way is raised.

    Raises:
        DocumentError: a workload does not fit the workflows, or its file is wrong.
        UnknownDocumentError: a document is not there.
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


def _seeds(text: str) -> list[int]:
    names = names_in(text, "--seed")
    wrong = [name for name in names if not name.isdecimal()]
    if wrong:
        message = f"{quoted(wrong[0])} is no whole number of at least 0"
        raise typer.BadParameter(message, param_hint="--seed")
    return list(dict.fromkeys(map(int, names)))
