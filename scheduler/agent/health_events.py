"""Health changes of the GPUs, reported once each: in the log and as an Event on the node."""

from collections.abc import Callable, Iterable

import structlog

from scheduler.agent.gpus.inventory import AssessedGpu
from scheduler.agent.gpus.reading import Reading
from scheduler.cluster.events import EventType

log = structlog.get_logger(__name__)


class HealthEvents:
    """Reports changes; stores the last report of each GPU.

    Args:
        record: function that records an Event on the node, with type, reason and message.
    """

    def __init__(self, record: Callable[[EventType, str, str], None]) -> None:
        self._record = record
        self._problem = ""
        self._unreadable: dict[int, str] = {}
        self._messages: dict[str, str] = {}

    def report_reading(self, reading: Reading) -> None:
        """Report unreadable GPUs and XIDs."""
        if reading.problem != self._problem:
            if reading.problem:
                log.error("GPUs cannot be read", problem=reading.problem)
            else:
                log.info("GPUs can be read again", gpus=len(reading.devices))
        self._problem = reading.problem
        for index, problem in reading.unreadable.items():
            if self._unreadable.get(index) != problem:
                log.error("GPU cannot be read", index=index, problem=problem)
        self._unreadable = dict(reading.unreadable)
        for xid in reading.xids:
            log.warning("XID", gpu=xid.uuid, xid=xid.code)

    def report_health(self, gpus: Iterable[AssessedGpu]) -> None:
        """Report GPUs that became unhealthy or recovered."""
        previous, self._messages = self._messages, {}
        for assessed in gpus:
            uuid, index = assessed.gpu.uuid, assessed.gpu.index
            message = assessed.problem.message if assessed.problem else ""
            self._messages[uuid] = message
            if message == previous.get(uuid, ""):
                continue
            subject = f"GPU {index} ({uuid})"
            if message:
                log.error("GPU is unhealthy", gpu=uuid, index=index, problem=message)
                self._record("Warning", "GPUUnhealthy", f"{subject}: {message}")
            else:
                log.info("GPU has recovered", gpu=uuid, index=index)
                self._record("Normal", "GPUHealthy", f"{subject} has recovered")
