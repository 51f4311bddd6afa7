"""Memory of the service at 5,000 nodes of 8 GPUs and 20,000 bound pods.

    PYTHONSAFEPATH=1 PYTHONPATH=build/compiled:. python -m bench.memory

Nodes and pods reach the handlers one at a time, as JSON, as from a watch. It prints the resident
set at rest and after some hundred calls, and its peak (Linux only: /proc). The result is compared
with ``bench/ranges/memory.json``; the exit status is 1 where it is out of range.
"""

import sys
from pathlib import Path
from urllib.request import urlopen

from bench.extender import CallTimes, SchedulerClient, TimedConnection
from bench.service import serving
from bench.thresholds import check_ranges
from workbench.cluster.process import free_port

NODES = 5_000
GPUS = 8
PODS = 20_000
NAMES = 500
CALLS = 300


def memory_mib(pid: int) -> dict[str, float]:
    """Read the resident set (VmRSS) and its peak (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {key: int(fields[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM")}


def main() -> int:
    """Measure, print and compare with the range."""
    with serving(0, GPUS, 0, port := free_port()) as process:
        print(f"empty                     {memory_mib(process.pid)['VmRSS']:6.0f} MiB", flush=True)
    with serving(NODES, GPUS, PODS, port := free_port()) as process:
        print(
            f"{NODES:,} nodes, {PODS:,} pods  {memory_mib(process.pid)['VmRSS']:6.0f} MiB",
            flush=True,
        )
        client = SchedulerClient(TimedConnection(port), NODES, process.pid)
        for _ in range(CALLS):
            client.place(NAMES, CallTimes(), bind=True)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            answer.read()
        after = memory_mib(process.pid)
    print(
        f"after {CALLS} pods and a scrape  {after['VmRSS']:6.0f} MiB, at most {after['VmHWM']:.0f}"
    )
    status = check_ranges("memory", {"service_rss_mib": after["VmRSS"]})
    print(f"service_rss_mib: {after['VmRSS']:.0f}")
    return status


if __name__ == "__main__":
    sys.exit(main())
