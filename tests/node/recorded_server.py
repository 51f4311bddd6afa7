"""A played model server in a container, which records what runs on its GPU.

    python recorded_server.py RECORDS --port 8000 --run-ms 80 --row-ms 10
    python recorded_server.py RECORDS    # no server: it uses its share until it ends

Each change is a line of the file RECORDS: seconds of the machine's monotonic clock, GPU, percent
that begin (or, negative, end) to run. All containers of a machine append to one file.
"""

import argparse
import asyncio
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.cluster.model_server import PlayedModelServer

SERVES_ON_S = 1.0  # after SIGTERM, as model servers do with the batches that they have


class Recorder:
    """Appends to the records; lines of several processes do not mix."""

    def __init__(self, records: Path) -> None:
        self._gpu = os.environ["ESG_GPU"]
        self._percent = int(os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
        self._file = os.open(records, os.O_WRONLY | os.O_APPEND)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record a run from its begin to its end."""
        self._write(self._percent)
        try:
            yield
        finally:
            self._write(-self._percent)

    def _write(self, percent: int) -> None:
        os.write(self._file, f"{time.monotonic():.6f} {self._gpu} {percent}\n".encode())


class RecordedServer(PlayedModelServer):
    """A played model server whose runs are recorded."""

    recorder: Recorder

    async def spend_time(self, rows: int) -> None:
        """Wait for the time of a run."""
        with self.recorder.running():
            await super().spend_time(rows)


def peak_percents(records: Path) -> dict[str, int]:
    """Return the largest percent that ran at a time, by GPU.

    A run that ends and one that begins at the same time were not beside each other.
    """
    lines = [line.split() for line in records.read_text(encoding="ascii").splitlines()]
    changes = sorted((float(at_s), int(percent), gpu) for at_s, gpu, percent in lines)
    running: Counter[str] = Counter()
    peaks: defaultdict[str, int] = defaultdict(int)
    for _, percent, gpu in changes:
        running[gpu] += percent
        peaks[gpu] = max(peaks[gpu], running[gpu])
    return dict(peaks)


async def _main(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    recorder = Recorder(arguments.records)
    if not arguments.port:
        with recorder.running():
            await ended.wait()
        return
    server = RecordedServer(run_ms=arguments.run_ms, row_ms=arguments.row_ms)
    server.recorder = recorder
    async with server.serving("0.0.0.0", arguments.port):
        await ended.wait()
        await asyncio.sleep(SERVES_ON_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("records", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--run-ms", type=float, default=0.0)
    parser.add_argument("--row-ms", type=float, default=0.0)
    asyncio.run(_main(parser.parse_args()))
