"""A played model server: the Open Inference Protocol by HTTP, the time of a run, and faults.

    python -m workbench.cluster.model_server --port 8000 --run-ms 5 [--fault cut --every 10]

Each output ``y`` is twice the input ``x``, row by row, so that a row that went to another request
is seen; further inputs come back unchanged. Output ``run`` has the number of the run and the rows
of its batch. It shares no code with the gateway.
"""

import argparse
import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Fault = Literal["none", "cut", "cut-answer", "die", "late", "rows", "error", "garbage"]
FAULTS: tuple[Fault, ...] = (
    "none", "cut", "cut-answer", "die", "late", "rows", "error", "garbage",
)  # fmt: skip
_LATE_S = 3600.0
_DTYPES = {"FP32": "<f4", "FP64": "<f8", "INT64": "<i8", "INT32": "<i4", "UINT8": "<u1"}
_HEADER_LENGTH = "inference-header-content-length"


@dataclass(frozen=True)
class ServedRun:
    """One request that the server got.

    Attributes:
        rows: number of rows of the batch.
        headers: headers of the request, by name in lower case.
        document: JSON header of the body.
    """

    rows: int
    headers: dict[str, str]
    document: dict[str, Any]


@dataclass
class PlayedModelServer:
    """The server's behaviour, and what it got.

    Attributes:
        run_ms: time of a run.
        row_ms: additional time of each row.
        slots: number of runs at a time; further ones wait.
        fault: fault that the server injects into runs.
        every: interval of the fault, in runs: 1 for each run, 2 for each second one.
        keep_alive: false if the connection is closed after each answer, without notice.
        ready: answer of the ready route.
        extensions: extensions of the protocol in its metadata; it takes binary tensors anyway.
        runs: runs in the order of their begin.
        port: port, once it serves.
        connections: number of connections accepted.
    """

    run_ms: float = 0.0
    row_ms: float = 0.0
    slots: int = 1
    fault: Fault = "none"
    every: int = 1
    keep_alive: bool = True
    ready: bool = True
    extensions: Sequence[str] = ("binary_tensor_data",)
    runs: list[ServedRun] = field(default_factory=list)
    port: int = 0
    connections: int = 0

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.slots)
        self._writers: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[None]:
        """Answer while inside."""
        server = await asyncio.start_server(self._connection, host, port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.cut_connections()
            await asyncio.sleep(0)

    def cut_connections(self) -> None:
        """Reset all connections, idle or not."""
        for writer in self._writers:
            writer.transport.abort()

    def begin(self, run: ServedRun) -> int:
        """Record a run that begins; return its number, from 1 on."""
        self.runs.append(run)
        return len(self.runs)

    async def spend_time(self, rows: int) -> None:
        """Wait for the time of a run."""
        if self.run_ms or self.row_ms:
            await asyncio.sleep((self.run_ms + rows * self.row_ms) / 1000)

    def outputs(self, inputs: Mapping[str, Array], number: int) -> dict[str, Array]:
        """Compute the outputs of a run."""
        outputs = {name: array for name, array in inputs.items() if name != "x"}
        outputs["y"] = 2 * inputs["x"]
        rows = len(inputs["x"])
        outputs["run"] = np.array([[number, rows]] * rows, np.int64)
        return outputs

    def signature(self) -> dict[str, Any]:
        """Describe the inputs and outputs of clients' requests; it answers any others, too."""
        row = {"datatype": "FP32", "shape": [-1, 1]}
        run = {"name": "run", "datatype": "INT64", "shape": [-1, 2]}
        return {"inputs": [{"name": "x", **row}], "outputs": [{"name": "y", **row}, run]}

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        pairs = (line.split(": ", 1) for line in lines[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if method == "POST" and path.endswith("/infer"):
            return await self._infer(headers, body, writer)
        if path.endswith("/ready"):
            return _answer(writer, [json.dumps({"ready": self.ready})], 200 if self.ready else 503)
        if path == "/v2":
            return _answer(
                writer,
                [json.dumps({"name": "played", "version": "1", "extensions": self.extensions})],
            )
        metadata = {"name": path.split("/")[3], "versions": ["1"], **self.signature()}
        return _answer(writer, [json.dumps(metadata)])

    async def _infer(
        self, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> bool:
        document, inputs = _read(headers, body)
        rows = len(next(iter(inputs.values())))
        async with self._free:
            number = self.begin(ServedRun(rows, headers, document))
            fault = self.fault if number % self.every == 0 else "none"
            await self.spend_time(rows)
        match fault:
            case "die":
                os._exit(1)
            case "cut":
                writer.transport.abort()
                return False
            case "late":
                await asyncio.sleep(_LATE_S)
            case "error":
                return _answer(writer, [json.dumps({"error": "the played model failed"})], 500)
            case "garbage":
                writer.write(b"\x00\x01 no HTTP\r\n\r\n")
                return False
        outputs = self.outputs(inputs, number)
        if fault == "rows":
            outputs = {name: array[:-1] for name, array in outputs.items()}
        names = [output["name"] for output in document.get("outputs", [])]
        selected = {name: outputs[name] for name in names or outputs}
        parts, header_length = _write(selected, binary=_HEADER_LENGTH in headers)
        if fault == "cut-answer":
            _answer(writer, parts, header_length=header_length, size_offset=10)
            await writer.drain()
            return False
        _answer(writer, parts, header_length=header_length)
        await writer.drain()
        return self.keep_alive


def _read(headers: dict[str, str], body: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    length = int(headers.get(_HEADER_LENGTH, len(body)))
    document, position = json.loads(body[:length]), length
    arrays = {}
    for entry in document["inputs"]:
        dtype = _DTYPES[entry["datatype"]]
        if "data" in entry:
            array = np.array(entry["data"], dtype)
        else:
            size = entry["parameters"]["binary_data_size"]
            array = np.frombuffer(body[position : position + size], dtype)
            position += size
        arrays[entry["name"]] = array.reshape(entry["shape"])
    return document, arrays


def _write(outputs: Mapping[str, Array], *, binary: bool) -> tuple[list[str | bytes], int | None]:
    entries, tail = [], []
    names = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
    for name, array in outputs.items():
        entry = {"name": name, "shape": array.shape, "datatype": names[array.dtype]}
        if binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            tail.append(array.tobytes())
        else:
            entry["data"] = array.reshape(-1).tolist()
        entries.append(entry)
    header = json.dumps({"model_name": "played", "outputs": entries})
    return [header, *tail], len(header) if binary else None


def _answer(
    writer: asyncio.StreamWriter,
    parts: Sequence[str | bytes],
    status: int = 200,
    *,
    header_length: int | None = None,
    size_offset: int = 0,
) -> bool:
    body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    lines = [f"HTTP/1.1 {status} Played", f"Content-Length: {len(body) + size_offset}"]
    if header_length is not None:
        lines.append(f"Inference-Header-Content-Length: {header_length}")
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    return True


async def _main(arguments: argparse.Namespace) -> None:
    server = PlayedModelServer(
        run_ms=arguments.run_ms,
        row_ms=arguments.row_ms,
        slots=arguments.slots,
        fault=arguments.fault,
        every=arguments.every,
    )
    async with server.serving(arguments.host, arguments.port):
        print(f"http://{arguments.host}:{server.port}", flush=True)  # noqa: T201 - for its parent
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--run-ms", type=float, default=0.0)
    parser.add_argument("--row-ms", type=float, default=0.0)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--every", type=int, default=1)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args()))
