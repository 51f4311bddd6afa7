"""Client processes of one GPU's MPS servers, and the end of those that outlive their server.

A process whose server has ended, or is in FAULT, can never use the GPU again, but NVIDIA leaves its
end to itself. A model server would stay Running and Ready with its grant and fail every request. So
it is ended here, and the pod's restart policy starts it again: by SIGKILL, because a program that
handles SIGTERM may exit with status 0, which `OnFailure` does not restart.

A server may end before a check has seen its newest client. Such a client is found by NVML, which
still lists it on the GPU, although it is a client of no running server.

Only processes of pods with a grant of this GPU are ended. A process is identified by its id and its
start time, and signalled by a descriptor, so that a reused id never means another one.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scheduler.agent.pods.process_pods import pod_uid_of_process

_PROC = Path("/proc")
_START_TIME = 18  # index of the field in /proc/<pid>/stat after the process's state
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_READINGS_AFTER_END = 3  # of NVML, in which a client of an ended server is looked for


@dataclass(frozen=True, slots=True)
class ClientReport:
    """Clients of a GPU.

    Attributes:
        connected: number of clients of the running servers.
        stale: number of clients whose server has ended, and that have not ended yet.
        faults: number of servers that were in FAULT, or ended with clients.
        ended: number of ended processes by the UID of their pod, for pods that still have a grant.
        ended_total: number of all ended processes.
    """

    connected: int = 0
    stale: int = 0
    faults: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)
    ended_total: int = 0


NO_CLIENTS = ClientReport()


@dataclass(frozen=True, slots=True)
class _Client:
    pid: int
    start: str


@dataclass(slots=True)
class _ServerEnd:
    at_s: float  # since boot
    is_counted: bool = False  # as a fault
    readings: int = 0  # of NVML since then


def _since_boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class MpsClients:
    """Records the clients of each server, and ends those that outlive it.

    Attributes:
        on_gpu: processes that NVML has listed on the GPU last.

    Args:
        pod_of: function that returns the UID of a process's pod.
        proc: folder of the machine's processes.
        clock: clock in seconds since the machine's boot.
    """

    def __init__(
        self,
        *,
        pod_of: Callable[[int], str | None] = pod_uid_of_process,
        proc: Path = _PROC,
        clock: Callable[[], float] = _since_boot_s,
    ) -> None:
        self._pod_of = pod_of
        self._proc = proc
        self._clock = clock
        self._servers: dict[int, set[_Client]] = {}
        self.on_gpu: tuple[int, ...] = ()
        self._faulty: set[int] = set()
        self._stale: dict[_Client, bool] = {}  # True: it got its signal
        self._last_end: _ServerEnd | None = None
        self._faults = 0
        self._ended: Counter[str] = Counter()
        self._ended_total = 0

    def set_processes(self, pids: Iterable[int]) -> None:
        """Set the processes that NVML lists on the GPU: a client may be too new for `observe`."""
        self.on_gpu = tuple(pids)
        if self._last_end is not None:
            self._last_end.readings += 1

    def observe(
        self,
        servers: Mapping[int, Collection[int]],
        *,
        faulty: Collection[int] = (),
        on_gpu: Collection[int] | None = None,
    ) -> None:
        """Set the clients of each running server; those of all others become stale.

        Args:
            servers: process ids of the clients by that of their server.
            faulty: servers in FAULT, whose clients become stale, too.
            on_gpu: `on_gpu` from before the servers were asked: one that has connected since is in
                no list of theirs. None: it has not changed.
        """
        listed = self.on_gpu if on_gpu is None else on_gpu
        for server in self._servers.keys() - servers.keys():
            self._lose(self._servers.pop(server), is_new=server not in self._faulty)
        for server, pids in servers.items():
            self._servers[server] = set(self._identified(pids))
        self._lose_unseen(listed)
        for server in faulty:
            clients = self._servers.get(server, set()) | set(self._identified(listed))
            self._stale |= dict.fromkeys(clients - self._stale.keys(), False)
        self._faults += len(set(faulty) - self._faulty)
        self._faulty = set(faulty)

    def lose_all(self) -> None:
        """Record that the daemon and its servers have ended."""
        clients = {client for server in self._servers.values() for client in server}
        if clients:
            clients |= set(self._identified(self.on_gpu))
        is_new = not self._faulty
        self._servers.clear()
        self._faulty.clear()
        self._lose(clients, is_new=is_new)

    def end_stale(self, pods: Collection[str]) -> list[int]:
        """End the stale clients of these pods, by UID; return their process ids, each once."""
        ended = []
        for client, is_signalled in list(self._stale.items()):
            uid = self._end(client, pods)
            if uid is None:
                del self._stale[client]
            elif uid and not is_signalled:
                self._stale[client] = True
                self._ended[uid] += 1
                self._ended_total += 1
                ended.append(client.pid)
        for uid in self._ended.keys() - set(pods):
            del self._ended[uid]
        return ended

    def report(self) -> ClientReport:
        """Report the current numbers."""
        connected = {client for server in self._servers.values() for client in server}
        return ClientReport(
            len(connected - self._stale.keys()),
            len(self._stale),
            self._faults,
            dict(self._ended),
            self._ended_total,
        )

    def _lose(self, clients: set[_Client], *, is_new: bool = True) -> None:
        """Add the clients of a server that has ended to the stale ones."""
        self._last_end = _ServerEnd(self._clock(), is_counted=not is_new)
        self._add_stale(clients, self._last_end)

    def _lose_unseen(self, on_gpu: Iterable[int]) -> None:
        """Add processes on the GPU that can only be clients of the server that ended last."""
        end = self._last_end
        if end is None or not end.readings:
            return
        if end.readings >= _READINGS_AFTER_END:
            self._last_end = None
        connected = {client for server in self._servers.values() for client in server}
        unseen = {
            client
            for client in self._identified(set(on_gpu) - self._servers.keys())
            if client not in connected
            and int(client.start) < end.at_s * _TICKS_PER_S
            and self._pod_of(client.pid) is not None
        }
        self._add_stale(unseen, end)

    def _add_stale(self, clients: set[_Client], end: _ServerEnd) -> None:
        alive = {client for client in clients if self._start(client.pid) == client.start}
        if alive and not end.is_counted:
            end.is_counted = True
            self._faults += 1
        self._stale |= dict.fromkeys(alive - self._stale.keys(), False)

    def _end(self, client: _Client, pods: Collection[str]) -> str | None:
        """End the client; return its pod, empty if it is none of these, None if it has ended."""
        try:
            descriptor = os.pidfd_open(client.pid)
        except OSError:
            return None
        try:
            if self._start(client.pid) != client.start:
                return None
            uid = self._pod_of(client.pid)
            if uid is None or uid not in pods:
                return ""
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return uid
        finally:
            os.close(descriptor)

    def _identified(self, pids: Iterable[int]) -> Iterable[_Client]:
        for pid in pids:
            if start := self._start(pid):
                yield _Client(pid, start)

    def _start(self, pid: int) -> str:
        """Return the start time of a running process; empty if it has ended."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        state, *fields = text.rpartition(")")[2].split()
        return "" if state in {"Z", "X"} else fields[_START_TIME]
