"""CPU time of the gateway's messages: parse, join, split and answer, without sockets.

    python -m bench.oip [--rounds 15]

A batch is eight binary requests of one row. Each goes through the reading of the request, its share
of the joined request and of the model server's answer, and the writing of its own answer, which is
1 KB; first over HTTP, then over gRPC, where a joined request is one copy. The last line has CPU
microseconds per request, the minimum over the rounds. These ratios are compared with
``bench/ranges/oip.json``: requests of 1 KB to a call of `json.loads` with the header of HTTP, and
requests of 600 KB to those of 1 KB. The status is 1 if one is out of its range.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable

from bench.thresholds import check_ranges
from scheduler.oip.batch import RowRange, join, split
from scheduler.oip.grpc_request import join_grpc, parse_grpc_request
from scheduler.oip.grpc_response import parse_grpc_response, write_grpc_response
from scheduler.oip.infer_request import parse_request
from scheduler.oip.infer_response import parse_response, write_response

BATCH = 8
SIZES = {"1k": 1024, "600k": 3 * 224 * 224 * 4}
ROUND_CALLS = 200


def request(size_bytes: int) -> tuple[bytes, str]:
    """Return the body of a request with one row, and the length of its header."""
    shape = [1, size_bytes // 4]
    tensor = {"binary_data_size": size_bytes}
    document = {
        "id": "request-1234",
        "inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "parameters": tensor}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    header = json.dumps(document).encode()
    return header + bytes(size_bytes), str(len(header))


def answer() -> tuple[bytes, str]:
    """Return a model server's answer to a batch, 1 KB per row."""
    tensor = {"binary_data_size": BATCH * 1024}
    outputs = [{"name": "y", "shape": [BATCH, 256], "datatype": "FP32", "parameters": tensor}]
    header = json.dumps({"model_name": "m", "model_version": "1", "outputs": outputs}).encode()
    return header + bytes(BATCH * 1024), str(len(header))


def exchange(size_bytes: int) -> Callable[[], object]:
    """Return a call that serves one batch."""
    request_body, request_length = request(size_bytes)
    answer_body, answer_length = answer()

    def serve() -> list[object]:
        requests = [
            parse_request(request_body, request_length).in_form(binary=True) for _ in range(BATCH)
        ]
        ranges = [RowRange(request, 0, request.rows) for request in requests]
        joined = join(ranges, binary=True, timeout_us=100_000)
        outputs = parse_response(answer_body, answer_length, rows=BATCH)
        answers = zip(requests, split(ranges, outputs), strict=True)
        written = [write_response("workflow", request, tensors) for request, tensors in answers]
        return [joined.content_length, *(message.content_length for message in written)]

    return serve


def grpc_exchange(size_bytes: int) -> Callable[[], object]:
    """Return a call that serves one batch over gRPC."""
    client = parse_request(*request(size_bytes))
    request_body = join_grpc([RowRange(client, 0, 1)], "workflow")
    outputs = parse_response(*answer(), rows=BATCH)
    answer_body = write_grpc_response("model", client, outputs)

    def serve() -> list[object]:
        requests = [parse_grpc_request(request_body).in_form(binary=True) for _ in range(BATCH)]
        ranges = [RowRange(request, 0, request.rows) for request in requests]
        joined = join_grpc(ranges, "model", timeout_us=100_000)
        outputs = parse_grpc_response(answer_body, rows=BATCH)
        answers = zip(requests, split(ranges, outputs), strict=True)
        written = [
            write_grpc_response("workflow", request, tensors) for request, tensors in answers
        ]
        return [len(joined), *map(len, written)]

    return serve


def cpu_us(call: Callable[[], object], rounds: int) -> float:
    """Return the CPU time of a call, the minimum over the rounds."""
    call()
    times_ns = []
    for _ in range(rounds):
        began = time.process_time_ns()
        for _ in range(ROUND_CALLS):
            call()
        times_ns.append(time.process_time_ns() - began)
    return min(times_ns) / ROUND_CALLS / 1000


def main() -> int:
    """Measure, print and compare with the ranges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    body, length = request(SIZES["1k"])
    loads_us = cpu_us(lambda: json.loads(body[: int(length)]), rounds)
    print(f"json.loads of the header: {loads_us:.1f} us")
    exchanges = {"oip": exchange, "grpc": grpc_exchange}
    times_us = {
        (kind, name): cpu_us(serve(size), rounds) / BATCH
        for kind, serve in exchanges.items()
        for name, size in SIZES.items()
    }
    print("  ".join(f"{kind}_us_{name}: {value:.1f}" for (kind, name), value in times_us.items()))
    ratios = {
        "1k_vs_json": times_us["oip", "1k"] / loads_us,
        "600k_vs_1k": times_us["oip", "600k"] / times_us["oip", "1k"],
        "grpc_1k_vs_json": times_us["grpc", "1k"] / loads_us,
        "grpc_600k_vs_1k": times_us["grpc", "600k"] / times_us["grpc", "1k"],
    }
    return check_ranges("oip", ratios)


if __name__ == "__main__":
    sys.exit(main())
