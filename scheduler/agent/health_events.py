"""What people are told of the GPUs: each change once, in the log and as an Event on the node."""

from collections.abc import Callable, Iterable

import structlog

from scheduler.agent.inventory import Judged
from scheduler.agent.reading import Reading
from scheduler.cluster.events import EventType

log = structlog.get_logger(__name__)


class HealthEvents:
    """Remembers what was told.

    Args:
        record: notes an Event on the node: its type, its reason, its message.
    """

    def __init__(self, record: Callable[[EventType, str, str], None]) -> None:
        self._record = record
        self._problem = ""
        self._unreadable: dict[int, str] = {}
        self._troubles: dict[str, str] = {}

    def heard(self, reading: Reading) -> None:
        """A reading came: what could not be read, and what errors there were."""
        if reading.problem != self._problem:
            if reading.problem:
                log.error("the GPUs cannot be read", problem=reading.problem)
            else:
                log.info("the GPUs can be read again", gpus=len(reading.devices))
        self._problem = reading.problem
        for index, why in reading.unreadable.items():
            if self._unreadable.get(index) != why:
                log.error("a GPU cannot be read", index=index, problem=why)
        self._unreadable = dict(reading.unreadable)
        for xid in reading.xids:
            log.warning("XID", gpu=xid.uuid, xid=xid.code)

    def judged(self, all_judged: Iterable[Judged]) -> None:
        """The GPUs were judged: which fell ill, and which recovered."""
        before, self._troubles = self._troubles, {}
        for judged in all_judged:
            uuid, index = judged.gpu.uuid, judged.gpu.index
            trouble = judged.illness.message if judged.illness else ""
            self._troubles[uuid] = trouble
            if trouble == before.get(uuid, ""):
                continue
            subject = f"GPU {index} ({uuid})"
            if trouble:
                log.error("a GPU is ill", gpu=uuid, index=index, problem=trouble)
                self._record("Warning", "GPUUnhealthy", f"{subject}: {trouble}")
            else:
                log.info("a GPU has recovered", gpu=uuid, index=index)
                self._record("Normal", "GPUHealthy", f"{subject} has recovered")
