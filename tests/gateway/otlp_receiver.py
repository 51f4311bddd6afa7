"""An OTLP receiver over HTTP in this process."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class ReceivedSpan(NamedTuple):
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    begin_ns: int
    end_ns: int
    attributes: dict
    status: int


@contextmanager
def otlp_receiver():
    """Yield the URL and a list of all spans that have come; close what sends before it is read."""
    spans = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            message = ExportTraceServiceRequest.FromString(body)
            for resource in message.resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(map(_span, scope.spans))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
        finally:
            server.shutdown()
            thread.join()


def _span(span):
    return ReceivedSpan(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes},
        span.status.code,
    )
