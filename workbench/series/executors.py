"""Executors of a series: processes of this machine, or the workers of a Dask cluster."""

import logging
import signal
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import active_children
from typing import Any

from workbench.series.process_pool import process_pool

LOCAL = "local"
_CONNECT_S = 20  # until a Dask scheduler answers, and has a worker
_PACKAGES = ("esg-scheduler", "numba", "numpy")  # a run's results depend on their versions


class DaskError(RuntimeError):
    """A Dask cluster cannot run a series; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesProcesses:
    """Processes that run a series.

    Attributes:
        count: maximum number of processes on this machine.
        dask: address of a Dask scheduler, whose workers run the jobs; ``local``: Dask workers on
            this machine. Default: processes without Dask.
    """

    count: int
    dask: str | None = None

    @contextmanager
    def executor(self, jobs: int) -> Iterator[Executor]:
        """Yield an executor for so many jobs; an exception kills the processes that it started.

        Raises:
            DaskError: the cluster cannot be reached, or cannot run jobs.
        """
        count, earlier = min(self.count, jobs), set(active_children())
        with ExitStack() as stack:
            if self.dask is None:
                pool = process_pool(count, start_method="spawn")
                executor: Executor = stack.enter_context(pool)
            else:
                executor = _dask_executor(self.dask, count, stack)
            try:
                yield executor
            except BaseException:  # nothing waits for the runs that go on
                for child in set(active_children()) - earlier:
                    child.kill()
                raise

    @property
    def lost_errors(self) -> tuple[type[BaseException], ...]:
        """Exceptions of a future whose process ended before its job."""
        if self.dask is None:
            return (BrokenExecutor,)
        from distributed import KilledWorker  # noqa: PLC0415 - of an extra

        return (KilledWorker, CancelledError)  # it lost several workers; the scheduler was lost


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Let SIGINT wait while inside; processes that start inside never receive it.

    A terminal sends it to all processes, and the parent alone decides which ones end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _dask_executor(address: str, count: int, stack: ExitStack) -> Executor:
    try:
        from distributed import Client, LocalCluster  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        raise DaskError(
            f"--dask needs {error.name}, which is not installed; run "
            "pip install 'esg-scheduler[dask]'"
        ) from None
    cluster: LocalCluster | str = address
    if address == LOCAL:
        with ctrl_c_blocked():
            cluster = LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=count,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
        stack.enter_context(cluster)
    try:
        client: Any = stack.enter_context(
            Client(cluster, timeout=_CONNECT_S)  # type: ignore[no-untyped-call]
        )
        client.wait_for_workers(1, timeout=_CONNECT_S)
    except (OSError, ValueError) as error:
        raise DaskError(f"--dask {address}: no scheduler with a worker there: {error}") from None
    _check_versions(address, client.get_versions(packages=_PACKAGES))
    if (threads := max(client.nthreads().values())) > 1:
        raise DaskError(
            f"--dask {address}: a worker has {threads} threads, and a run needs a process of its "
            "own; start workers with --nthreads 1"
        )
    executor: Executor = client.get_executor()
    return executor


def _check_versions(address: str, versions: dict[str, Any]) -> None:
    here = versions["client"]["packages"]
    for worker, there in versions["workers"].items():
        for name in _PACKAGES:
            version = there["packages"].get(name)
            if version != here[name]:
                raise DaskError(
                    f"--dask {address}: worker {worker} has {name} {version}, this process "
                    f"{here[name]}; install the same version there"
                )
