"""The parent's side of the process that plays the model servers of pods."""

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any

from workbench.cluster.model_player import PlayedPod
from workbench.cluster.process import Program, Programs


class ModelPods:
    """Starts and stops played model servers."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._turn = asyncio.Lock()

    @classmethod
    async def begin(cls, programs: Programs, *, seed: int, noise_ratio: float) -> "ModelPods":
        """Start the process."""
        module = "workbench.cluster.model_player"
        command = [sys.executable, "-m", module, str(seed), str(noise_ratio)]
        return cls(await programs.start("the player of model servers", command, pipes=True))

    async def start(self, pod: PlayedPod) -> None:
        """Start the model server of a pod; it listens at the return."""
        await self._call({"start": asdict(pod)})

    async def stop(self, name: str) -> None:
        """Stop the model server of a pod."""
        await self._call({"stop": name})

    async def report(self) -> dict[str, Any]:
        """Return the sums over all runs, `workbench.cluster.model_player.RunTotals.as_json`."""
        return await self._call({"report": True})

    async def busy_s(self) -> dict[str, float]:
        """Map names of running pods to the time of their runs, s, times their share of a GPU."""
        return await self._call({"busy": True})

    async def _call(self, command: dict[str, Any]) -> dict[str, Any]:
        # A caller that is cancelled must not leave its answer to the next one.
        return await asyncio.shield(self._exchange(command))

    async def _exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            await self._program.write(json.dumps(command).encode())
            answer: dict[str, Any] = json.loads(await self._program.line())
            return answer
