"""Series of the webhook: calls by result, and readiness."""

import pytest

from scheduler.webhook.metrics import WebhookMetrics
from scheduler.webhook.wire import AdmissionResponse, Status


@pytest.mark.parametrize(
    ("response", "result"),
    [
        (AdmissionResponse(uid="u", allowed=True), "unchanged"),
        (AdmissionResponse(uid="u", allowed=True, patch="W10="), "mutated"),
        (
            AdmissionResponse(
                uid="u", allowed=False, status=Status(code=403, reason="Forbidden", message="m")
            ),
            "denied",
        ),
    ],
)
def test_calls_are_counted_by_their_result(response: AdmissionResponse, result: str) -> None:
    """Each result has a series from the start, at zero."""
    metrics = WebhookMetrics()
    metrics.count(response)
    text = metrics.exposition({}, ready=True).decode()
    for series in ("mutated", "unchanged", "denied"):
        value = "1.0" if series == result else "0.0"
        assert f'esg_webhook_requests_total{{result="{series}"}} {value}' in text


@pytest.mark.parametrize("ready", [True, False])
def test_readiness_is_a_series(ready: bool) -> None:
    """An alert sees a replica that is not ready, before the last one is gone."""
    text = WebhookMetrics().exposition({"pods": 1.5}, ready=ready).decode()
    assert f'esg_ready{{component="webhook"}} {float(ready)}' in text
