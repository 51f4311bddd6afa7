"""Documents and pods that are not used, and why."""

import structlog

log = structlog.get_logger(__name__)
Place = tuple[str, str, str]  # kind, namespace, name


class ProblemLog(dict[Place, str]):
    """Current problems; each is logged when it appears."""

    def report(self, place: Place, problem: str) -> None:
        """Add a problem."""
        if self.get(place) != problem:
            kind, namespace, name = place
            log.warning("not used", kind=kind, namespace=namespace, name=name, problem=problem)
        self[place] = problem

    def clear_place(self, place: Place) -> None:
        """Remove a problem, if there is one."""
        self.pop(place, None)
