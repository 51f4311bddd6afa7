"""Documents and pods that are not used, and why."""

import structlog

log = structlog.get_logger(__name__)
ObjectKey = tuple[str, str, str]  # kind, namespace, name


class ProblemLog(dict[ObjectKey, str]):
    """Current problems; each is logged when it appears."""

    def report(self, key: ObjectKey, problem: str) -> None:
        """Add a problem."""
        if self.get(key) != problem:
            kind, namespace, name = key
            log.warning("not used", kind=kind, namespace=namespace, name=name, problem=problem)
        self[key] = problem

    def resolve(self, key: ObjectKey) -> None:
        """Remove a problem, if there is one."""
        self.pop(key, None)
