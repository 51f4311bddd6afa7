"""Chrome trace of a run: a node is a process, a GPU a thread, and a job on it a slice."""

from itertools import accumulate, chain
from pathlib import Path

from studies.training.result import JobsResult
from workbench.files.trace_events import TraceFile

_US_PER_S = 1e6
_JOBS = 0  # the process that waiting jobs are shown as


def write_placement_trace(path: Path, result: JobsResult) -> None:
    """Write all placements, and each job from its submission to its end."""
    trace = TraceFile(path, "GPUs of each job")
    try:
        trace.name_process(_JOBS, "jobs")
        firsts = list(accumulate(result.nodes, initial=0))[:-1]
        nodes = list(chain.from_iterable([n] * gpus for n, gpus in enumerate(result.nodes)))
        for node in range(len(result.nodes)):
            trace.name_process(node + 1, f"node {node}")
        for number, job in enumerate(result.jobs):
            shown = {"cat": "job", "id": number, "pid": _JOBS, "tid": 0, "name": job.name}
            args = {"model": job.model, "gpus": job.gpus, "restarts": job.restarts}
            trace.add({**shown, "ph": "b", "ts": job.submit_s * _US_PER_S, "args": args})
            trace.add({**shown, "ph": "e", "ts": job.end_s * _US_PER_S})
        for span in result.spans:
            job = result.jobs[span.job]
            times = {
                "ts": span.begin_s * _US_PER_S,
                "dur": (span.end_s - span.begin_s) * _US_PER_S,
            }
            for gpu in span.gpus:
                node = nodes[gpu]
                where = {"ph": "X", "pid": node + 1, "tid": gpu - firsts[node]}
                args = {"gpus": len(span.gpus)}
                trace.add({**where, **times, "cat": job.model, "name": job.name, "args": args})
    finally:
        trace.close()
