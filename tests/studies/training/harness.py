"""Small workloads and policies for tests of the simulator of training clusters."""

from studies.training.engine import simulate_jobs
from studies.training.environment import WorkloadSource
from studies.training.environments.pollux import PolluxEnvironment, PolluxEnvironmentParameters
from studies.training.environments.pollux_generated import generated_models
from studies.training.environments.pollux_job import PolluxJob
from studies.training.job import JobPlacement
from studies.training.policy import RunParameters, TrainingPolicy
from studies.training.registry import jobs_policy_class

MODELS = generated_models()


def pollux_job(name="job", *, gpus=1, submit_s=0.0, model="generated-small", batch=256):
    return PolluxJob(
        name=name, model=model, submit_s=submit_s, gpus=gpus, tables=MODELS[model], batch=batch
    )


def generated(*, seed=0, nodes=None, gpus=None, **parameters):
    """Load the generated workload of the environment pollux."""
    return PolluxEnvironment.load(
        PolluxEnvironmentParameters(**parameters), WorkloadSource(nodes=nodes, gpus=gpus, seed=seed)
    )


def policy(name, *, seed=0, **settings):
    kind = jobs_policy_class(name)
    return kind(kind.parameters_type(**settings), seed)


def simulated(name, environment=None, **settings):
    return simulate_jobs(environment or generated(), policy(name, **settings), name)


class Scripted(TrainingPolicy):
    """A policy that returns one answer every time, or what a function computes."""

    def __init__(self, answer):
        super().__init__(RunParameters(), 0)
        self._answer = answer

    def decide(self, state):
        answer = self._answer(state.jobs) if callable(self._answer) else self._answer
        return {name: JobPlacement(tuple(gpus)) for name, gpus in answer.items()}
