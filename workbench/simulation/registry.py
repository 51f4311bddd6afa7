"""The policies by name: ours, and those that others register under an entry point."""

from importlib import import_module
from importlib.metadata import entry_points

from workbench.simulation.errors import UnknownPolicyError
from workbench.simulation.policy import Policy

ENTRY_POINTS = "esg_scheduler.policies"

_OURS = {  # imported when asked for: some need packages that others do not
    "esg": "planned:Esg",
    "exact": "planned:Exact",
    "infless": "infless:Infless",
    "fast-gshare": "fast_gshare:FastGshare",
    "orion": "orion:Orion",
    "aquatope": "aquatope:Aquatope",
    "oracle": "oracle:Oracle",
    "minimum": "minimum:Minimum",
    "grandslam": "grandslam:GrandSlam",
    "random": "random_policy:RandomPolicy",
}


def policy_names() -> list[str]:
    """All policies that can be simulated; ours first."""
    others = {point.name for point in entry_points(group=ENTRY_POINTS)}
    return [*_OURS, *sorted(others - _OURS.keys())]


def policy_class(name: str) -> type[Policy]:
    """The policy of that name.

    Raises:
        UnknownPolicyError: there is none, or it cannot be imported, or is no policy.
    """
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        found = getattr(import_module(f"workbench.simulation.policies.{module}"), attribute)
    else:
        found = _registered(name)
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise UnknownPolicyError(f"policy {name}: {found!r} is no class derived from Policy")
    return found


def _registered(name: str) -> object:
    for point in entry_points(group=ENTRY_POINTS, name=name):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise UnknownPolicyError(
                f"policy {name}: its entry point {point.value} cannot be loaded: {error}"
            ) from error
    raise UnknownPolicyError(f"no policy {name!r}; there are {', '.join(policy_names())}")
