"""Policies by name: those of this package, of installed entry points, and of files."""

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from workbench.simulation.errors import UnknownPolicyError, described
from workbench.simulation.policy import Policy

ENTRY_POINTS = "esg_scheduler.policies"
_FILE_MARK = ".py:"

_BUILT_IN = {  # imported on demand: some need packages that others do not
    "esg": "planned:Esg",
    "exact": "planned:Exact",
    "warm": "warm:WarmPolicy",
    "infless": "infless:Infless",
    "infless-code": "infless:InflessCode",
    "fast-gshare": "fast_gshare:FastGshare",
    "fast-gshare-code": "fast_gshare:FastGshareCode",
    "orion": "orion:Orion",
    "orion-code": "orion:OrionCode",
    "aquatope": "aquatope:Aquatope",
    "oracle": "oracle:Oracle",
    "minimum": "minimum:Minimum",
    "grandslam": "grandslam:GrandSlam",
    "random": "random_policy:RandomPolicy",
}
_STATIONS = {  # they run stages on shares of GPUs, without containers
    "sgprs": "sgprs:Sgprs",
    "sgprs-naive": "sgprs_naive:SgprsNaive",
    "dysta": "dysta:Dysta",
    "prema": "prema:Prema",
    "sjf": "sjf:ShortestJobFirst",
    "fcfs": "fcfs:Fcfs",
    "compass": "compass:Compass",
    "home-node": "home_node:HomeNode",
}
_ALL = _BUILT_IN | _STATIONS


def policy_names() -> list[str]:
    """List all policies that can be simulated; those of this package first."""
    registered = {point.name for point in entry_points(group=ENTRY_POINTS)}
    return [*_ALL, *sorted(registered - _ALL.keys())]


def container_policy_names() -> list[str]:
    """List the policies that run batches in containers, as the ESG paper's evaluation does."""
    return [name for name in policy_names() if name not in _STATIONS]


def policy_class(name: str) -> type[Policy]:
    """Return the policy of that name, or of a class in a file: ``path/to/file.py:Class``.

    Raises:
        UnknownPolicyError: it does not exist, cannot be imported, or is no policy.
    """
    if name in _ALL:
        module, _, attribute = _ALL[name].partition(":")
        policy = getattr(import_module(f"workbench.simulation.policies.{module}"), attribute)
    elif _FILE_MARK in name:
        policy = _from_file(name)
    else:
        policy = _registered(name)
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise UnknownPolicyError(f"policy {name}: {policy!r} is no class derived from Policy")
    return policy


def _registered(name: str) -> object:
    for point in entry_points(group=ENTRY_POINTS, name=name):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise UnknownPolicyError(
                f"policy {name}: its entry point {point.value} cannot be loaded: {error}"
            ) from error
    raise UnknownPolicyError(
        f"no policy {name!r}; there are {', '.join(policy_names())}, and FILE.py:CLASS"
    )


def _from_file(name: str) -> object:
    path, _, attribute = name.rpartition(":")
    module = _module(Path(path).resolve(), name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise UnknownPolicyError(f"policy {name}: the file has no class {attribute!r}") from None


@cache
def _module(file: Path, name: str) -> ModuleType:
    """Import a file once per process; ``name`` is for the message."""
    if not file.exists():
        raise UnknownPolicyError(f"policy {name}: {file} does not exist")
    spec = spec_from_file_location(f"esg_policy_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UnknownPolicyError(f"policy {name}: {file} is no Python file")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UnknownPolicyError(
            f"policy {name}: {file} cannot be imported: {described(error)}"
        ) from error
    return module
