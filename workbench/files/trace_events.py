"""File of trace events: for chrome://tracing, Perfetto, speedscope.

It has the JSON object form of the "Trace Event Format"; times are microseconds.
"""

import json
from pathlib import Path
from typing import Any


class TraceFile:
    """Trace events, an event a line."""

    def __init__(self, path: Path, shows: str) -> None:
        """Write to ``path``; ``shows`` says what the trace contains."""
        self._file = path.open("w", encoding="utf-8", newline="")
        head = {"displayTimeUnit": "ms", "otherData": {"shows": shows}}
        self._file.write(json.dumps(head)[:-1] + ', "traceEvents": [')
        self._separator = "\n"

    def close(self) -> None:
        """End the trace and the file."""
        self._file.write("\n]}\n")
        self._file.close()

    def name_process(self, process: int, name: str) -> None:
        """Name a process, which is a group of rows."""
        self.add({"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}})

    def name_thread(self, process: int, thread: int, name: str) -> None:
        """Name a thread, which is a row."""
        where = {"pid": process, "tid": thread}
        self.add({"ph": "M", **where, "name": "thread_name", "args": {"name": name}})

    def add(self, event: dict[str, Any]) -> None:
        """Add an event."""
        self._file.write(self._separator + json.dumps(event))
        self._separator = ",\n"
