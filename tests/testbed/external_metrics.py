"""Played adapter of external metrics, which a HorizontalPodAutoscaler scales by.

In a cluster, prometheus-adapter or KEDA serves this API from Prometheus. The controller that reads
it through the API server is the real one.
"""

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.testbed.api import Json, wait_until
from tests.testbed.control_plane import ControlPlane

GROUP = "external.metrics.k8s.io"
SERVICE = "external-metrics"
API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.{GROUP}"

MetricValues = dict[str, int]
"""Value of each metric, in all namespaces."""


@contextmanager
def external_metrics(plane: ControlPlane) -> Iterator[MetricValues]:
    """Serve the values that the caller sets, from the time at which the API server has them."""
    values: MetricValues = {}
    issued = plane.server_certificate(SERVICE, (f"{SERVICE}.kube-system.svc",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(values))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    # The API server resolves the name of a Service of this type itself.
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": "kube-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {
                "name": SERVICE,
                "namespace": "kube-system",
                "port": server.server_address[1],
            },
            "caBundle": base64.b64encode(plane.ca.read_bytes()).decode(),
        },
    }
    try:
        plane.api.apply(service)
        plane.api.apply(registration)
        wait_until(lambda: _is_available(plane.api.get(API_SERVICE)), what="metrics are served")
        yield values
    finally:
        plane.api.delete(API_SERVICE)
        plane.api.delete(f"/api/v1/namespaces/kube-system/services/{SERVICE}")
        server.shutdown()
        thread.join()
        server.server_close()


def _is_available(registration: Json) -> bool:
    conditions = (registration.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)


def _handler(values: MetricValues) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.partition("?")[0].rpartition("/")[2]
            answer = _metric(name, values[name]) if name in values else _resources(values)
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Log nothing: a test asserts on what the autoscaler does."""

    return Handler


def _metric(name: str, value: int) -> Json:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    item = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(value)}
    kind = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/v1beta1"}
    return {**kind, "metadata": {}, "items": [item]}


def _resources(values: MetricValues) -> Json:
    resources = [
        {
            "name": name, "singularName": "", "namespaced": True,
            "kind": "ExternalMetricValueList", "verbs": ["get"],
        }
        for name in values
    ]  # fmt: skip
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/v1beta1",
        "resources": resources,
    }
