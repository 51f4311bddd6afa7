"""Metrics of the webhook: declaration and documentation of every series of its ``/metrics``."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, Histogram, Info, generate_latest

from scheduler import __version__

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

    def exposition(self, staleness_s: Mapping[str, float]) -> bytes:
        """Render the text of ``/metrics``; ``staleness_s`` is the age of the cache by resource."""
        for resource, seconds in staleness_s.items():
            self._staleness.labels(resource).set(seconds)
        return generate_latest(self.registry)
