"""Policies and environments by name."""

from importlib import import_module
from typing import Any

from studies.training.environment import JobEnvironment
from studies.training.errors import JobsError
from studies.training.policy import TrainingPolicy

POLICIES = {  # imported on demand: some compile kernels
    "tiresias": "tiresias:Tiresias",
    "optimus": "optimus:Optimus",
    "pollux": "pollux:Pollux",
    "fifo": "fifo:Fifo",
    "srtf": "srtf:Srtf",
    "srsf": "srsf:Srsf",
    "tiresias-events": "tiresias_events:TiresiasEvents",
    "las": "tiresias_events:Las",
    "gittins": "gittins:Gittins",
    "qssf": "qssf:Qssf",
    "synergy": "synergy:Synergy",
    "antman": "antman:AntMan",
    "isolated": "isolated:Isolated",
    "gavel-fifo": "gavel_fifo:GavelFifo",
    "allox": "allox:AlloX",
    "gandiva-fair": "gandiva_fair:GandivaFair",
    "max-min": "max_min_fairness:MaxMinFairness",
    "themis": "themis:Themis",
    "themis-events": "themis_events:ThemisEvents",
    "min-makespan": "min_makespan:MinMakespan",
    "max-throughput": "max_throughput:MaxThroughput",
    "gandiva": "gandiva:Gandiva",
    "sjf": "sjf:Sjf",
    "sjf-ffs": "sjf_ffs:SjfFfs",
    "sjf-bsbf": "sjf_bsbf:SjfBsbf",
    "edf": "edf:Edf",
    "chronus": "chronus:Chronus",
    "andreas": "andreas:Andreas",
    "a-online": "a_online:AOnline",
    "bftrainer": "bftrainer:BfTrainer",
    "oasis": "oasis:Oasis",
    "dag-fifo": "dag_fifo:DagFifo",
    "dag-fair": "dag_fair:DagFair",
    "dag-shortest": "dag_shortest:DagShortest",
    "dag-tree": "dag_tree:DagTree",
}
ENVIRONMENTS = {
    "pollux": "pollux:PolluxEnvironment",
    "tiresias": "tiresias:TiresiasEnvironment",
    "synergy": "synergy:SynergyEnvironment",
    "sharing": "sharing:SharingEnvironment",
    "chronus": "chronus:ChronusEnvironment",
    "muri": "muri:MuriEnvironment",
    "andreas": "andreas:AndreasEnvironment",
    "gavel": "gavel:GavelEnvironment",
    "executors": "executors:ExecutorEnvironment",
    "shockwave": "shockwave:ShockwaveEnvironment",
    "transient": "transient:TransientEnvironment",
    "servers": "servers:ServerEnvironment",
}


def jobs_policy_class(name: str) -> type[TrainingPolicy[Any]]:
    """Return the policy of that name.

    Raises:
        JobsError: there is none; the message lists those there are.
    """
    policy: type[TrainingPolicy[Any]] = _entry("policies", "policy", POLICIES, name)
    return policy


def environment_class(name: str) -> type[JobEnvironment[Any]]:
    """Return the environment of that name.

    Raises:
        JobsError: there is none; the message lists those there are.
    """
    environment: type[JobEnvironment[Any]] = _entry(
        "environments", "environment", ENVIRONMENTS, name
    )
    return environment


def _entry(package: str, kind: str, entries: dict[str, str], name: str) -> Any:
    if name not in entries:
        raise JobsError(f"no {kind} {name!r}; there are {', '.join(entries)}")
    module, _, attribute = entries[name].partition(":")
    return getattr(import_module(f"studies.training.{package}.{module}"), attribute)
