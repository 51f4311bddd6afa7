"""An event loop whose clock jumps to the next timer when nothing else is to do."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    """Waits for no time: the loop's clock advances by it instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing can happen any more"
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time, for code that does no I/O."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self):
        """Return the virtual time."""
        return self._jumping.now_s


def run_virtually(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)
