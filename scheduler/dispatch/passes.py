"""Order and times of the passes over functions."""

from collections.abc import Iterable
from math import inf

from scheduler.dispatch.batching import DispatchPass, OnDrop, OnRun
from scheduler.dispatch.namespace_plans import NamespacePlans
from scheduler.dispatch.pods import FunctionKey, Pod, Run
from scheduler.dispatch.slice_table import SliceTable
from scheduler.dispatch.workflow_queues import FunctionState


class Passes:
    """Passes over the queues of functions, which begin batches.

    Args:
        functions: state of each function, by key; their owner adds to them.
        plans: plans of all namespaces.
        slices: slices of pooled pods.
        on_run: begins a batch.
        on_drop: drops a job that is late.

    Attributes:
        wake_at_ms: time of the next pass without an event; inf: none.
    """

    def __init__(
        self,
        functions: dict[FunctionKey, FunctionState],
        plans: NamespacePlans,
        slices: SliceTable,
        *,
        on_run: OnRun,
        on_drop: OnDrop,
    ) -> None:
        self._functions = functions
        self._plans = plans
        self._slices = slices
        self._on_run = on_run
        self._on_drop = on_drop
        self.wake_at_ms = inf

    def look(self, functions: Iterable[FunctionState], now_ms: float) -> None:
        """Begin the batches of functions that can begin."""
        for function in functions:
            if not function.rows or not (function.pool.open or function.drops_late):
                self._wake_at(function, inf)
                continue
            look = DispatchPass(
                function,
                self._plans.of(function.key[0]),
                self._plans.prices,
                now_ms,
                on_run=self._on_run,
                on_drop=self._on_drop,
            )
            look.begin_batches()
            self._wake_at(function, max(look.wake_ms, now_ms))

    def look_by_deadline(self, functions: dict[FunctionState, None], now_ms: float) -> None:
        """Begin batches; the function whose first row has the least time begins."""
        with_rows = [function for function in functions if function.rows]
        if len(with_rows) > 1:
            self.look(sorted(functions, key=self._due_ms), now_ms)
        else:
            self.look(functions, now_ms)

    def look_at_pods(self, pods: Iterable[Pod], now_ms: float) -> None:
        """Begin batches after a change of the slice of some pods."""
        self.look_by_deadline(self.reopen(pods), now_ms)
        self._reschedule()

    def take_tokens(self, run: Run) -> None:
        """Take the tokens of a run that begins."""
        pod = run.pod
        if (gpu_slice := pod.slice) is not None:
            share = pod.share
            self.reopen(
                self._slices.take(gpu_slice.key, pod.name, share.gpu_percent, share.cpu, run.end_ms)
            )

    def give_tokens_back(
        self, run: Run, now_ms: float, *, at_ms: float = -inf
    ) -> dict[FunctionState, None]:
        """Give back the tokens of a run now or at a time to come; return who may use them now."""
        if run.pod.slice is None:
            return {}
        key = run.pod.slice.key
        if at_ms <= now_ms:
            return self.reopen(self._slices.give_back(key, run.pod.name))
        self._slices.give_back_at(key, run.pod.name, at_ms)
        self._reschedule()
        return {}

    def wake(self, now_ms: float) -> None:
        """Look at the functions whose time has come."""
        functions = self.reopen(self._slices.change(now_ms))
        functions |= {f: None for f in self._functions.values() if f.wake_ms <= now_ms}
        self.look(functions, now_ms)
        self._reschedule()

    def reopen(self, pods: Iterable[Pod]) -> dict[FunctionState, None]:
        """Update which pods of a slice are open; return the functions of those that are."""
        functions: dict[FunctionState, None] = {}
        for pod in pods:
            function = self._functions[pod.function]
            if pod.name in function.pool.pods:
                function.pool.reopen(pod)
                if pod.is_open and function.rows:
                    functions[function] = None
        return functions

    def _reschedule(self) -> None:
        """Update `wake_at_ms`."""
        wakes_ms = (function.wake_ms for function in self._functions.values())
        self.wake_at_ms = min(self._slices.changes_at_ms, *wakes_ms, inf)

    def _wake_at(self, function: FunctionState, wake_ms: float) -> None:
        before_ms, function.wake_ms = function.wake_ms, wake_ms
        if wake_ms <= self.wake_at_ms:
            self.wake_at_ms = wake_ms
        elif before_ms == self.wake_at_ms:
            self._reschedule()

    def _due_ms(self, function: FunctionState) -> float:
        plans = self._plans.of(function.key[0])
        return min(
            (
                queue.deadline_ms - plans.stage(queue.workflow.key, queue.name).fastest_ms
                for queue in function.queues
                if queue.jobs
            ),
            default=inf,
        )
