"""Arrivals for tests: while they are collected, they are held against their contract."""

import numpy as np
import psutil

from workbench.simulation.workload import CHUNK_MAX

WORKFLOWS = (("default", "a"), ("default", "b"), ("other", "b"), ("other", "c"))


def collected(arrivals):
    """All times and indices of workflows of arrivals that keep the contract of chunks."""
    times_ms, indices = [np.empty(0)], [np.empty(0, np.int32)]
    latest_ms = 0.0
    for chunk_ms, workflows in arrivals.chunks():
        assert chunk_ms.dtype == np.float64
        assert workflows.dtype == np.int32
        assert 1 <= chunk_ms.size <= CHUNK_MAX
        assert chunk_ms.shape == workflows.shape
        assert chunk_ms[0] >= latest_ms
        assert (np.diff(chunk_ms) >= 0).all()
        assert workflows.min() >= 0
        assert workflows.max() < len(arrivals.workflows)
        latest_ms = chunk_ms[-1]
        times_ms.append(chunk_ms)
        indices.append(workflows)
    return np.concatenate(times_ms), np.concatenate(indices)


def is_open(file):
    """Return true if this process holds the file open."""
    return str(file) in {open_file.path for open_file in psutil.Process().open_files()}


def variation(times_ms):
    """The coefficient of variation of the gaps."""
    gaps_ms = np.diff(times_ms)
    return gaps_ms.std() / gaps_ms.mean()


def azure_csv(file, counts, first_minute=1):
    """A trace of that form: the counts of each function by its name."""
    minutes = len(next(iter(counts.values())))
    numbers = ",".join(str(first_minute + i) for i in range(minutes))
    lines = [f"HashOwner,HashApp,HashFunction,Trigger,{numbers}"]
    lines += [f"o,p,{name},http,{','.join(map(str, row))}" for name, row in counts.items()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def requests_csv(file, rows, header="time_ms,workflow"):
    """A file of requests: pairs of a time and a workflow."""
    lines = [header, *(f"{time},{workflow}" for time, workflow in rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
