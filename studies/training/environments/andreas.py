"""Environment ``andreas``: unlike GPUs, energy, and a price for each second after a deadline.

Decisions happen when a job arrives or ends. Run times on each GPU model are Gavel's throughputs, or
generated. The duration of a trace is that on the requested number of the fastest GPUs. Deadlines
and prices of delay follow the generator of the published evaluation. The cluster is 6 nodes of 4
GPUs, of three models in turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from studies.training.cluster import TrainingCluster, TrainingNode
from studies.training.environment import WorkloadSource
from studies.training.environments.gavel_throughputs import THROUGHPUTS_FILE, read_throughputs
from studies.training.environments.job_rows import DurationRow, generated_rows, read_rows
from studies.training.environments.paced import PacedEnvironment, PacedJob, PacedParameters
from studies.training.job import Deadline, DeadlineJob, HeterogeneousJob, TrainingJob
from studies.training.policy import RunParameters
from studies.training.result import JobsResult

NODES, GPUS = 6, 4
_WATTS = {"v100": 300.0, "p100": 250.0, "k80": 150.0}  # maker's limit of one GPU
_NODE_WATTS = 350.0
_W_PER_KW = 1000.0
_S_PER_H = 3600.0
_COSTS_PER_S = (2.54e-4, 4.44e-4)  # of delay, as in the published generator
_SLACK_RATIO = 3.0  # the latest deadline over the shortest run time
_SPEEDS = {"v100": 1.0, "p100": 0.5, "k80": 0.2}  # of generated models
_SCALING = 0.85  # generated: speed grows with GPUs to this power
_GPU_OPTIONS = (1, 2, 4, 8)

Speeds = Mapping[str, Mapping[int, float]]
"""Relative speed of a model by GPU model and number of GPUs."""


class AndreasEnvironmentParameters(PacedParameters):
    """Price of energy, and a load at which jobs wait: most GPUs are slower."""

    load_ratio: float = Field(
        default=0.6, gt=0, description="GPU-seconds of generated jobs over those of the cluster"
    )
    energy_dollars_per_kwh: float = Field(default=0.2, ge=0, description="price of energy")


@dataclass(slots=True, kw_only=True, eq=False)
class EnergyJob(PacedJob, DeadlineJob, HeterogeneousJob):
    """A job whose work is one unit.

    Attributes:
        times_s: run time by GPU model and number of GPUs.
        time_limit_s: deadline, in seconds after the submission.
        late_cost_per_s: price of each second of delay.
    """

    times_s: Mapping[str, Mapping[int, float]]
    time_limit_s: float = 0.0
    late_cost_per_s: float = 0.0

    @property
    def remaining_s(self) -> float:
        """Shortest remaining run time on the requested number of GPUs, else on any number."""
        times_s = [by_gpus.get(self.gpus) for by_gpus in self.times_s.values()]
        measured_s = [time_s for time_s in times_s if time_s is not None]
        return self.remaining_count * (min(measured_s) if measured_s else self.shortest_s)

    @property
    def shortest_s(self) -> float:
        """Run time on the best option."""
        return min(time_s for by_gpus in self.times_s.values() for time_s in by_gpus.values())

    @property
    def deadlines(self) -> tuple[Deadline, ...]:
        """One deadline."""
        return (Deadline(self.time_limit_s, self.late_cost_per_s),)

    def options(self, gpu_model: str) -> tuple[int, ...]:
        """Return the numbers of GPUs with a run time."""
        return tuple(self.times_s.get(gpu_model, ()))

    def remaining_on_s(self, gpu_model: str, gpus: int) -> float:
        """Return the remaining run time."""
        return self.remaining_count * self.times_s[gpu_model][gpus]


class AndreasEnvironment(PacedEnvironment[EnergyJob]):
    """Jobs of a trace on unlike GPUs."""

    job_type: ClassVar[type[TrainingJob]] = EnergyJob
    parameters_type: ClassVar[type[RunParameters]] = AndreasEnvironmentParameters

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a trace and the throughputs of its models; see `JobEnvironment.load`."""
        price = parameters.energy_dollars_per_kwh / _W_PER_KW
        count = source.nodes or NODES
        models = [*_WATTS][:count]
        cluster = TrainingCluster(
            tuple(
                TrainingNode(
                    source.gpus or GPUS,
                    models[number % len(models)],
                    cost_per_h=_NODE_WATTS * price,
                    gpu_cost_per_h=_WATTS[models[number % len(models)]] * price,
                )
                for number in range(count)
            )
        )
        speeds = _generated_speeds() if source.data is None else _read_speeds(source.data)
        if source.workload is None:
            rows = generated_rows(
                source.seed,
                models=sorted(speeds),
                jobs=parameters.job_count,
                gpus=source.gpus or GPUS,  # no job is larger than a node
                load_ratio=parameters.load_ratio * cluster.gpus / (source.gpus or GPUS),
            )
        else:
            rows = read_rows(source.workload, speeds)
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([source.seed, 2])))
        usable = {
            model: {
                gpu_model: {n: speed for n, speed in by_gpus.items() if n <= (source.gpus or GPUS)}
                for gpu_model, by_gpus in by_model.items()
                if gpu_model in models
            }
            for model, by_model in speeds.items()
        }
        return cls(parameters, [_job(row, usable[row.model], random) for row in rows], cluster)

    def set_paces(self, running: Sequence[EnergyJob]) -> None:
        """Take the run time of the slowest GPU model that a job holds."""
        cluster = self.cluster
        for job in running:
            gpus = job.placement.gpus
            models = {cluster.nodes[cluster.node_of[gpu]].gpu_model for gpu in gpus}
            job.unit_s = max(_nearest(job.times_s[model], len(gpus)) for model in models)

    def price_dollars(self, result: JobsResult) -> float:
        """Return the price of energy and of delay, of a result of this environment."""
        cluster = self.cluster
        energy = sum(
            (span.end_s - span.begin_s)
            / _S_PER_H
            * cluster.nodes[cluster.node_of[gpu]].gpu_cost_per_h
            for span in result.spans
            for gpu in span.gpus
        )
        until_s: dict[int, float] = {}
        for span in sorted(result.spans, key=lambda span: span.begin_s):
            for node in {cluster.node_of[gpu] for gpu in span.gpus}:
                begin_s = max(span.begin_s, until_s.get(node, span.begin_s))
                if span.end_s > begin_s:
                    open_h = (span.end_s - begin_s) / _S_PER_H
                    energy += open_h * cluster.nodes[node].cost_per_h
                    until_s[node] = span.end_s
        late = sum(
            job.late_cost_per_s * max(record.end_s - record.deadline_s, 0.0)
            for job, record in zip(self.jobs, result.jobs, strict=True)
        )
        return energy + late


def _nearest(by_gpus: Mapping[int, float], gpus: int) -> float:
    """Return the value of a number of GPUs, else that of the next lower one, else the lowest."""
    return by_gpus[max((count for count in by_gpus if count <= gpus), default=min(by_gpus))]


def _job(row: DurationRow, speeds: Speeds, random: np.random.Generator) -> EnergyJob:
    used = {model: by_gpus for model, by_gpus in speeds.items() if by_gpus}
    fastest = max(_nearest(by_gpus, row.gpus) for by_gpus in used.values())
    times_s = {
        model: {gpus: row.duration_s * fastest / speed for gpus, speed in by_gpus.items()}
        for model, by_gpus in used.items()
    }
    every_s = [time_s for by_gpus in times_s.values() for time_s in by_gpus.values()]
    latest_s = min(_SLACK_RATIO * min(every_s), max(every_s))
    return EnergyJob(
        name=row.name,
        model=row.model,
        submit_s=row.submit_s,
        gpus=row.gpus,
        work_count=1.0,
        times_s=times_s,
        time_limit_s=row.submit_s + random.uniform(min(every_s), latest_s),
        late_cost_per_s=random.uniform(*_COSTS_PER_S),
    )


def _generated_speeds() -> dict[str, Speeds]:
    """Return models that gain more, or less, from better GPUs."""
    return {
        f"generated-{number}": {
            model: {gpus: speed**power * gpus**_SCALING for gpus in _GPU_OPTIONS}
            for model, speed in _SPEEDS.items()
        }
        for number, power in enumerate((0.5, 1.0, 1.5))
    }


def _read_speeds(data: Path) -> dict[str, Speeds]:
    """Return the throughputs of all job types by GPU model and number of GPUs."""
    tables = read_throughputs(data / THROUGHPUTS_FILE, _WATTS)
    names = sorted({name for name, _ in tables["v100"]})
    return {
        name: {
            model: {
                gpus: tables[model][name, gpus].alone_rps
                for gpus in _GPU_OPTIONS
                if (name, gpus) in tables[model] and tables[model][name, gpus].alone_rps > 0
            }
            for model in _WATTS
        }
        for name in names
    }
