"""The webhook's FastAPI application."""

import time

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import ValidationError

from scheduler import __version__
from scheduler.server.messages import Reader
from scheduler.webhook.admission import Admission
from scheduler.webhook.metrics import WebhookMetrics
from scheduler.webhook.review_body import ReviewBodies
from scheduler.webhook.wire import AdmissionAnswer, AdmissionReview

_REVIEW = Reader(AdmissionReview)


def create_webhook(admission: Admission, metrics: WebhookMetrics) -> FastAPI:
    """Create the application; without OpenAPI, because Kubernetes defines the contract."""
    app = FastAPI(
        title="esg-scheduler webhook",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    bodies = ReviewBodies()

    @app.post("/mutate")
    async def mutate(request: Request) -> Response:
        """Admit an object; mutate it if it is a function pod."""
        start_s = time.perf_counter()
        async with bodies.read(request) as body:
            review = _REVIEW.parse(body)
            try:
                response = await admission.admit(review.request)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                field = ".".join(["request.object", *(str(part) for part in first["loc"])])
                raise HTTPException(422, f"not a valid Pod: {field}: {first['msg']}") from None
        metrics.count(response)
        metrics.call_duration.observe(time.perf_counter() - start_s)
        answer = AdmissionAnswer(response=response)
        return Response(answer.as_json(), media_type="application/json")

    return app
