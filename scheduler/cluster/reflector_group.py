"""Reflectors of one process together: what they follow, and what fails."""

from collections.abc import Iterable, Mapping

from scheduler.cluster.reflector import Reflector


class ReflectorGroup:
    """Several reflectors, one for each resource."""

    def __init__(self, reflectors: Iterable[Reflector] = ()) -> None:
        self._reflectors = list(reflectors)

    def staleness_s(self) -> dict[str, float]:
        """Map each resource to the seconds since the server's last answer about it."""
        return {watch.resource.plural: watch.staleness_s() for watch in self._reflectors}

    def troubles(self) -> dict[str, str]:
        """Map each failing resource to its failure; empty if all work."""
        return {
            watch.resource.plural: watch.trouble
            for watch in self._reflectors
            if watch.trouble is not None
        }

    def synced(self) -> bool:
        """Return true if the first list of every resource has been passed on."""
        return all(watch.synced.is_set() for watch in self._reflectors)


def unsynced_reason(troubles: Mapping[str, str]) -> str:
    """Say that a first list is not complete, with the failures of `ReflectorGroup.troubles`."""
    failures = "; ".join(f"{resource}: {failure}" for resource, failure in troubles.items())
    return f"the first list is not complete{f' ({failures})' if failures else ''}"
