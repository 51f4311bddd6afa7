"""State of one GPU's MPS daemon: `esg mps` writes it, `esg agent` reads it.

It is a file and not a connection, because each of the two must work without the other: an old
file shows the agent that `esg mps` does not run, and the daemons survive any agent. The machine's
monotonic clock gives the age; all containers of a node share it and none can set it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from scheduler.agent.mps.clients import NO_CLIENTS, ClientReport
from scheduler.agent.whole_file import write_whole

_FILE = "state.json"

Phase = Literal["starting", "ready", "unhealthy", "stopped"]


@dataclass(frozen=True, slots=True)
class DaemonState:
    """A daemon's phase, its trouble, the number of its restarts, and its clients."""

    phase: Phase
    trouble: str = ""
    restarts: int = 0
    clients: ClientReport = NO_CLIENTS


class _StateFile(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    phase: Phase
    trouble: str
    restarts: int
    clients: ClientReport
    at_s: float  # monotonic clock


def write_state(folder: Path, state: DaemonState, *, clock: Callable[[], float]) -> None:
    """Write the state into the GPU's folder atomically; create the folder if needed.

    Raises:
        OSError: the file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = _StateFile(
        phase=state.phase,
        trouble=state.trouble,
        restarts=state.restarts,
        clients=state.clients,
        at_s=clock(),
    )
    write_whole(folder / _FILE, content.model_dump_json())


def read_state(folder: Path, *, clock: Callable[[], float], silent_after_s: float) -> DaemonState:
    """Read the state from the GPU's folder; ``unhealthy`` without a valid, recent file."""
    path = folder / _FILE
    try:
        content = _StateFile.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return DaemonState("unhealthy", f"no MPS daemon runs: `esg mps` has not written {path}")
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "`esg mps` did not write it"
        return DaemonState("unhealthy", f"{path} cannot be read: {reason}")
    if not 0 <= clock() - content.at_s <= silent_after_s:  # the clock restarts with the machine
        trouble = "`esg mps`, the supervisor of its MPS daemon, does not run"
        return DaemonState("unhealthy", trouble, content.restarts, content.clients)
    return DaemonState(content.phase, content.trouble, content.restarts, content.clients)


def trouble_of(state: DaemonState) -> str:
    """Describe why the daemon cannot be used; empty if it can."""
    if state.phase == "ready":
        return ""
    return state.trouble or f"MPS daemon is {state.phase}"
