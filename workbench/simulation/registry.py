"""Policies by name: those of this package, and those of installed entry points."""

from importlib import import_module
from importlib.metadata import entry_points

from workbench.simulation.errors import UnknownPolicyError
from workbench.simulation.policy import Policy

ENTRY_POINTS = "esg_scheduler.policies"

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


def policy_names() -> list[str]:
    """List all policies that can be simulated; those of this package first."""
    registered = {point.name for point in entry_points(group=ENTRY_POINTS)}
    return [*_BUILT_IN, *sorted(registered - _BUILT_IN.keys())]


def policy_class(name: str) -> type[Policy]:
    """Return the policy of that name.

    Raises:
        UnknownPolicyError: it does not exist, cannot be imported, or is no policy.
    """
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        policy = getattr(import_module(f"workbench.simulation.policies.{module}"), attribute)
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
    raise UnknownPolicyError(f"no policy {name!r}; there are {', '.join(policy_names())}")
