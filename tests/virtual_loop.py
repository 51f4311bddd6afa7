"""An event loop whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import functools


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs timers in the order of their times, at once; for code without sockets.

    What a program would run in a thread runs on the loop, at once: a run depends on nothing else.
    """

    def __init__(self):
        super().__init__()
        self._virtual_s = 0.0

        def jump(timeout):
            if timeout is None:
                raise RuntimeError("nothing is left to happen, and something is still awaited")
            self._virtual_s += timeout
            return ()

        self._selector.select = jump

    def time(self):
        return self._virtual_s

    def run_in_executor(self, _executor, function, *arguments):
        future = self.create_future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - for the caller
            future.set_exception(error)
        return future


def run_virtually(coroutine, loop_factory=VirtualLoop):
    """Run a coroutine to its end."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(coroutine)


def virtually(scenario):
    """Turn a coroutine function into a test in virtual time."""

    @functools.wraps(scenario)
    def test(**arguments):
        run_virtually(scenario(**arguments))

    return test
