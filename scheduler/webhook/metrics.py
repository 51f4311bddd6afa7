"""Metrics of the webhook: declaration and documentation of every series of its ``/metrics``."""

from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    generate_latest,
)

from scheduler import __version__
from scheduler.webhook.wire import AdmissionResponse

_CALL_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class WebhookMetrics:
    """All series of one webhook, in their own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.call_duration = Histogram(
            "esg_webhook_request_duration_seconds",
            "Duration of one call by the API server, from the first byte of the body to the "
            "response.",
            buckets=_CALL_SECONDS,
            registry=registry,
        )
        self.calls = Counter(
            "esg_webhook_requests_total",
            "Calls by the API server, by result: mutated, unchanged (no function pod, or complete "
            "already), denied.",
            ["result"],
            registry=registry,
        )
        for result in ("mutated", "unchanged", "denied"):
            self.calls.labels(result)
        self._ready = Gauge(
            "esg_ready",
            "1 if the process can serve now, as /readyz says.",
            ["component"],
            registry=registry,
        )
        self.certificate_ends = Gauge(
            "esg_webhook_certificate_expires_timestamp_seconds",
            "Expiry of the webhook's certificate, seconds since the epoch.",
            registry=registry,
        )
        self._staleness = Gauge(
            "esg_reflector_staleness_seconds",
            "Time since the last message of the watch on a resource.",
            ["resource"],
            registry=registry,
        )
        Info("esg_webhook", "Version of the webhook.", registry=registry).info(
            {"version": __version__}
        )

    def count(self, response: AdmissionResponse) -> None:
        """Count an answered call."""
        result = "mutated" if response.patch else "unchanged" if response.allowed else "denied"
        self.calls.labels(result).inc()

    def exposition(self, staleness_s: Mapping[str, float], *, ready: bool) -> bytes:
        """Render the text of ``/metrics``.

        Args:
            staleness_s: age of the cache in seconds, by resource.
            ready: true if the webhook can serve.
        """
        self._ready.labels("webhook").set(ready)
        for resource, seconds in staleness_s.items():
            self._staleness.labels(resource).set(seconds)
        return generate_latest(self.registry)
