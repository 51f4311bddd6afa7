"""Machines that stand still: all that runs on one waits, while the rest of the world goes on.

What runs on a machine are the tasks that were created in its context, with all that they start. The
loop holds their steps and timers back while the machine is paused.
"""

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from tests.virtual_loop import VirtualLoop

_MACHINE: "ContextVar[Machine | None]" = ContextVar("machine", default=None)


class Machine:
    """One machine.

    Attributes:
        context: of its tasks.
        is_paused: it stands still.
        suspended_s: time for which its monotonic clock has stood still.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.context = copy_context()
        self.context.run(_MACHINE.set, self)
        self.is_paused = False
        self.suspended_s = 0.0
        self._loop = loop
        self._paused_s = 0.0
        self._held_back: list[_Step] = []

    def monotonic_s(self) -> float:
        """Return its time since its start, without the times in which it was suspended."""
        return self._loop.time() - self.suspended_s

    def pause(self) -> None:
        """Let nothing happen on it; the clocks go on."""
        self.is_paused = True
        self._paused_s = self._loop.time()

    def resume(self, *, is_suspended: bool) -> None:
        """Go on; ``is_suspended``: the monotonic clock has stood still, and so have the timers."""
        if not self.is_paused:
            return
        self.is_paused = False
        if is_suspended:
            self.suspended_s += self._loop.time() - self._paused_s
        steps, self._held_back = self._held_back, []
        for step in steps:
            step.repeat()

    def hold_back(self, step: "_Step") -> None:
        self._held_back.append(step)


class MachineLoop(VirtualLoop):
    """A virtual loop whose tasks run on machines."""

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        machine = _machine_of(context)
        if machine is None:
            return super().call_soon(callback, *args, context=context)
        step = _Step(self, machine, lambda: callback(*args))
        step.handle = super().call_soon(step, context=context)
        return step.handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        machine = _machine_of(context)
        if machine is None:
            return super().call_at(when, callback, *args, context=context)
        step = _Step(self, machine, lambda: callback(*args), when)
        step.handle = super().call_at(when, step, context=context)
        return step.handle


class _Step:
    """An event that happens on a machine once; with ``at_s`` a timer of its monotonic clock."""

    handle: Any  # by which it is cancelled

    def __init__(
        self,
        loop: MachineLoop,
        machine: Machine,
        act: Callable[[], None],
        at_s: float | None = None,
    ) -> None:
        self._loop = loop
        self._machine = machine
        self._act = act
        self._at_s = at_s
        self._suspended_s = machine.suspended_s

    def __call__(self) -> None:
        if self.handle.cancelled():
            return
        machine = self._machine
        if machine.is_paused:
            machine.hold_back(self)
            return
        if self._at_s is not None:
            self._at_s += machine.suspended_s - self._suspended_s
            self._suspended_s = machine.suspended_s
            if self._at_s > self._loop.time():
                VirtualLoop.call_at(self._loop, self._at_s, self, context=self.handle._context)
                return
        self._act()

    def repeat(self) -> None:
        """Happen now, after what the machine has held back before."""
        VirtualLoop.call_soon(self._loop, self, context=self.handle._context)


def _machine_of(context: Context | None) -> Machine | None:
    return _MACHINE.get() if context is None else context.get(_MACHINE)
