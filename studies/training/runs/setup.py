"""Setup and outcome of one run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scheduler.model.message_text import listed, quoted
from studies.training.environment import JobEnvironment, WorkloadSource
from studies.training.errors import JobsError
from studies.training.policy import RunParameters, TrainingPolicy
from studies.training.registry import environment_class, jobs_policy_class
from studies.training.result import JobsResult


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSetup:
    """All that a run depends on.

    Attributes:
        policy, environment: names in the registry.
        workload: trace file; None: a generated trace.
        data: folder with the tables of traces; None: generated tables.
        nodes, gpus: size of the cluster, GPUs per node; None: the environment's.
        seed: seed of all random numbers.
        settings: parameters by name, of the policy or of the environment.
        folder: folder for the files of this run; None: it writes none.
    """

    policy: str
    environment: str
    workload: Path | None = None
    data: Path | None = None
    nodes: int | None = None
    gpus: int | None = None
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    def __str__(self) -> str:
        return f"{self.policy}, {self.workload_name}, seed {self.seed}" + (
            f", {self.settings_text}" if self.settings else ""
        )

    @property
    def workload_name(self) -> str:
        """Name of the workload's file, without its ending."""
        return "generated" if self.workload is None else self.workload.stem

    @property
    def settings_text(self) -> str:
        """Settings as text."""
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())

    def parameters(self) -> tuple[RunParameters, RunParameters]:
        """Return the parameters of the policy and of the environment.

        A parameter that both have, as the length of a round, has the environment's default.

        Raises:
            JobsError: neither has one of the settings, or its value is wrong.
        """
        policy_type = jobs_policy_class(self.policy).parameters_type
        environment_type = environment_class(self.environment).parameters_type
        names = [*policy_type.model_fields, *environment_type.model_fields]
        unknown = [name for name in self.settings if name not in names]
        if unknown:
            raise JobsError(
                f"--set {unknown[0]}: neither policy {self.policy} nor environment "
                f"{self.environment} has it; there are {listed(names)}"
            )
        environment = self._parsed(environment_type, {})
        return self._parsed(policy_type, environment.model_dump()), environment

    def _parsed(self, kind: type[RunParameters], defaults: Mapping[str, Any]) -> RunParameters:
        settings = {**defaults, **self.settings}
        values = {name: value for name, value in settings.items() if name in kind.model_fields}
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            name = ".".join(map(str, detail["loc"]))
            value = quoted(detail["input"])
            raise JobsError(f"--set {name}: {detail['msg']} (given: {value})") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsOutcome:
    """Result or failure of a run.

    Attributes:
        result: result; None where the run failed.
        failure: reason of the failure; empty where the run is complete.
        wall_s: duration of the run, without reading files.
    """

    setup: JobsSetup
    result: JobsResult | None = None
    failure: str = ""
    wall_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Return setup and figures as JSON; wall times are not part of it."""
        setup = self.setup
        fields = {
            "policy": setup.policy,
            "environment": setup.environment,
            "workload": setup.workload_name,
            "seed": setup.seed,
            "settings": dict(setup.settings),
        }
        if self.result is None:
            return {**fields, "failure": self.failure}
        return {**fields, **self.result.summary()}


def load(setup: JobsSetup) -> tuple[JobEnvironment[Any], TrainingPolicy[Any]]:
    """Construct environment and policy of a run.

    Raises:
        JobsError: a name or a setting is wrong.
        DocumentError: a file is missing or wrong.
    """
    policy_parameters, environment_parameters = setup.parameters()
    environment = environment_class(setup.environment).load(
        environment_parameters,
        WorkloadSource(
            workload=setup.workload,
            data=setup.data,
            nodes=setup.nodes,
            gpus=setup.gpus,
            seed=setup.seed,
        ),
    )
    return environment, jobs_policy_class(setup.policy)(policy_parameters, setup.seed)
