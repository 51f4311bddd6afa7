"""MPS daemons as the tests play them: see mps_control.py."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from scheduler.agent.settings import AgentSettings

PROGRAM = Path(__file__).with_name("mps_control.py")


class FakeDaemons:
    """The daemons of one machine.

    Attributes:
        program: what stands for nvidia-cuda-mps-control.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.program = folder / "nvidia-cuda-mps-control"
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {PROGRAM} "$@"\n')
        self.program.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """What `esg mps` needs to find them, and to look often."""
        return {
            "ESG_AGENT_MPS_ROOT": str(self.root),
            "ESG_AGENT_MPS_CONTROL": str(self.program),
            "ESG_AGENT_MPS_CHECK_EVERY_S": "0.05",
            "ESG_AGENT_MPS_FAULT_GRACE_S": "0.2",
            "ESG_AGENT_MPS_STOP_S": "1",
            "ESG_AGENT_READ_EVERY_S": "0.1",
        }

    def settings(self, **given: Any) -> AgentSettings:
        """The same for a `Daemon` in this process."""
        prefix = "ESG_AGENT_"
        named = {k.removeprefix(prefix).lower(): v for k, v in self.environment.items()}
        return AgentSettings(**{**named, "mps_own_shm": False, **given})

    def fault(self, uuid: str, **faults: Any) -> None:
        """Say what is wrong with a daemon from now on; nothing: all is well."""
        place = self.root / uuid / "fault.json"
        place.parent.mkdir(exist_ok=True)
        fresh = place.with_suffix(".new")
        fresh.write_text(json.dumps(faults))
        fresh.replace(place)

    def pid(self, uuid: str) -> int:
        """Of the daemon that serves the GPU."""
        return int((self.root / uuid / "pipe" / "nvidia-cuda-mps-control.pid").read_text())

    def kill(self, uuid: str) -> None:
        """End the daemon as the out-of-memory killer would: its files stay."""
        os.kill(self.pid(uuid), signal.SIGKILL)

    def starts(self, uuid: str) -> list[dict[str, Any]]:
        """How it was started, each time."""
        log = self.root / uuid / "log" / "control.log"
        return [json.loads(line) for line in log.read_text().splitlines()]

    def servers(self, uuid: str) -> list[int]:
        """The users for whom a server was asked for, each time."""
        log = self.root / uuid / "log" / "server.log"
        return [int(line) for line in log.read_text().splitlines()]

    def state(self, uuid: str) -> dict[str, Any]:
        """What `esg mps` says of it; nothing if it has not yet."""
        try:
            return json.loads((self.root / uuid / "state.json").read_text())
        except FileNotFoundError:
            return {}
