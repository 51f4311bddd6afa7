"""How one GPU's MPS daemon is: written by `esg mps`, read by `esg agent`.

A file and no connection, because each of the two must be right when the other is dead: the agent
sees from the file's age that nobody keeps the daemon, and the daemons outlive any agent. The age is
told by the machine's monotonic clock, which all containers of a node share and nobody sets.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

_FILE = "state.json"

Phase = Literal["starting", "ready", "ill", "stopped"]


@dataclass(frozen=True, slots=True)
class DaemonState:
    """A daemon's phase, what is wrong with it, and how often it was started again."""

    phase: Phase
    trouble: str = ""
    restarts: int = 0


class _Written(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    phase: Phase
    trouble: str
    restarts: int
    at: float  # seconds of the monotonic clock


def write_state(folder: Path, state: DaemonState, *, clock: Callable[[], float]) -> None:
    """Write the state into the GPU's folder, whole or not at all; the folder is made.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = _Written(
        phase=state.phase, trouble=state.trouble, restarts=state.restarts, at=clock()
    )
    fresh = folder / f".{_FILE}.{os.getpid()}"
    fresh.write_text(written.model_dump_json(), encoding="utf-8")
    fresh.replace(folder / _FILE)


def read_state(folder: Path, *, clock: Callable[[], float], silent_after_s: float) -> DaemonState:
    """The state in the GPU's folder; ``ill`` where nothing usable and fresh is there."""
    path = folder / _FILE
    try:
        written = _Written.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return DaemonState("ill", f"no MPS daemon is kept for it: `esg mps` has not written {path}")
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not what `esg mps` writes"
        return DaemonState("ill", f"{path} cannot be read: {reason}")
    if not 0 <= clock() - written.at <= silent_after_s:  # the clock began anew with the machine
        return DaemonState(
            "ill", "`esg mps`, which keeps its MPS daemon, is dead", written.restarts
        )
    return DaemonState(written.phase, written.trouble, written.restarts)


def trouble_of(state: DaemonState) -> str:
    """What is wrong with the daemon, in a sentence; empty when it may be used."""
    if state.phase == "ready":
        return ""
    return state.trouble or f"its MPS daemon is {state.phase}"
