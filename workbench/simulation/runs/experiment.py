"""Scenario file: policies, settings, seeds and requests to compare on one cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from scheduler.model.message_text import listed, quoted
from workbench.simulation.registry import policy_class, policy_names
from workbench.simulation.runs.job import SimulationJob
from workbench.simulation.scenario import Count, CountOrNone, Scenario, ScenarioError
from workbench.simulation.workloads.paper import SETTINGS, Paper
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.registry import parse_workload
from workbench.simulation.workloads.requests import Requests

ALL = "all"
_REQUESTS = 10_000  # per run, where the workload does not end
_UNSWEPT = frozenset({"policies", "settings", "seeds", "sweep", "trace_requests", "profiles"})


def _items(value: Any) -> Any:
    """Split a text at its commas; drop repetitions."""
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, Iterable):
        items = list(dict.fromkeys(i.strip() if isinstance(i, str) else i for i in items))
        if not any(str(item) for item in items):
            raise ValueError(f"{quoted(value)} names nothing")
        return [item for item in items if item != ""]
    return [items]


def _known_setting(name: str) -> str:
    if name not in SETTINGS and name != ALL:
        raise ValueError(f"{quoted(name)} is unknown; it is one of {listed(list(SETTINGS))}")
    return name


SettingName = Annotated[str, BeforeValidator(_known_setting)]


class Experiment(Scenario):
    """All keys of a scenario file; a list may also be one text with commas."""

    policies: Annotated[tuple[str, ...], BeforeValidator(_items)] = Field(
        default=("warm", "infless"),
        description="policies to compare; or all; the default is what ships, and INFless",
    )
    settings: Annotated[tuple[SettingName, ...], BeforeValidator(_items)] = Field(
        default=("moderate-normal",),
        description="SLO and load of the paper: strict-, moderate- or relaxed- with light, normal "
        "or heavy; or all",
    )
    seeds: Annotated[tuple[CountOrNone, ...], BeforeValidator(_items)] = Field(
        default=(0,), description="seeds of arrivals and of everything random, one run for each"
    )
    requests: Count | None = Field(
        default=None, description="requests per run; absent: 10,000, or all that a trace has"
    )
    profiles: Path | None = Field(
        default=None,
        description="file or folder with Workflows and FunctionProfiles; absent: the generated "
        "samples",
    )
    workload: dict[str, Any] | None = Field(
        default=None,
        description="a workload in place of the paper's: its `name`, and its parameters",
    )
    trace_requests: CountOrNone = Field(
        default=1_000,
        description="the Chrome trace of the first seed ends after so many requests; 0: no trace",
    )

    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default={},
        description="runs with each of several values of a key, in all combinations: `{nodes: "
        "[8, 16], rules.group_size: [1, 3]}`. A dot leads into a mapping, as in `--set`",
    )

    @model_validator(mode="after")
    def _swept_values_are_valid(self) -> Self:
        for _ in self._swept():
            pass
        return self

    @model_validator(mode="after")
    def _one_workload(self) -> Self:
        keys = self.model_fields_set
        if self.workload is None and "slo_factor" in keys:
            raise ValueError("slo_factor goes with workload or --trace; a setting has its own")
        if self.workload is not None and "settings" in keys:
            raise ValueError(
                "settings name the paper's load; with another workload give slo_factor"
            )
        return self

    def effective(self) -> dict[str, Any]:
        """Return all keys and values as plain data; the file that they make is this experiment."""
        unused = {"workload", "slo_factor"} if self.workload is None else {"settings"}
        return self.model_dump(mode="json", exclude=unused, exclude_none=True)

    def jobs(self, out: Path | None = None) -> list[SimulationJob]:
        """Return a job for each setting, policy and seed; the first seed's write a trace.

        Raises:
            UnknownPolicyError: the registry has no such policy.
            DocumentError: the workload's parameters are wrong.
            ScenarioError: two runs would have the same name.
        """
        policies = policy_names() if ALL in self.policies else self.policies
        for name in policies:
            policy_class(name)
        jobs = [
            SimulationJob(
                policy=policy,
                setting=setting,
                seed=seed,
                scenario=scenario,
                workload=workload,
                requests=variant.requests
                or (None if isinstance(workload, Requests) else _REQUESTS),
                trace_requests=0 if number else self.trace_requests,
            )
            for values, variant in self._swept()
            for setting, scenario, workload in variant.settings_of(values)
            for policy in policies
            for number, seed in enumerate(self.seeds)
        ]
        _check_names(jobs)
        if out is None:
            return jobs
        return [replace(job, folder=out / "runs" / job.file_stem) for job in jobs]

    def _swept(self) -> Iterator[tuple[str, "Experiment"]]:
        """Yield the experiment of each combination of swept values, with the values as text."""
        if not self.sweep:
            yield "", self
            return
        keys = self.model_dump(exclude_unset=True, exclude={"sweep"})
        for values in product(*self.sweep.values()):
            settings = dict(zip(self.sweep, values, strict=True))
            text = ", ".join(f"{key}={value}" for key, value in settings.items())
            if fixed := _UNSWEPT.intersection(settings):
                names = listed(sorted(fixed))
                raise ValueError(f"sweep: {names} cannot vary; policies, settings and seeds do")
            varied = dict(keys)
            for key, value in settings.items():
                _assign(varied, key.split("."), value)
            try:
                yield text, Experiment.model_validate(varied)
            except ValidationError as error:
                faults = error.errors(include_url=False)
                reasons = (
                    f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults
                )
                raise ValueError(f"sweep: {text}: {'; '.join(reasons)}") from None

    def settings_of(self, values: str) -> Sequence[tuple[str, Scenario, Workload]]:
        """Return name, scenario and workload of each setting; the name has the swept values."""
        suffix = f", {values}" if values else ""
        plain = Scenario(**{name: getattr(self, name) for name in Scenario.model_fields})
        if self.workload is None:
            names = SETTINGS if ALL in self.settings else self.settings
            return [
                (
                    name + suffix,
                    plain.model_copy(update={"slo_factor": SETTINGS[name].slo_factor}),
                    Paper(load=SETTINGS[name].load),
                )
                for name in names
            ]
        parameters = dict(self.workload)
        workload = parse_workload(str(parameters.pop("name", "")), parameters, "workload")
        name = workload.file.name if isinstance(workload, Requests) else workload.name
        return [(name + suffix, plain, workload)]


def _check_names(jobs: Sequence[SimulationJob]) -> None:
    by_name: dict[str, SimulationJob] = {}
    for job in jobs:
        namesake = by_name.setdefault(job.file_stem, job)
        if namesake is not job:
            runs = f"{quoted(namesake.setting)} and {quoted(job.setting)}"
            raise ScenarioError(f"sweep: {runs} would write the same files; give distinct values")


def _assign(keys: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value below the keys of a path; mappings on the way are copied."""
    first, *below = path
    if below:
        inner = keys.get(first)
        keys[first] = dict(inner) if isinstance(inner, Mapping) else {}
        _assign(keys[first], below, value)
    else:
        keys[first] = value
