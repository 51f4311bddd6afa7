"""Certificates, and the webhook over an embedded cluster."""

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scheduler.cli.document_files import read_nodes, read_paths
from scheduler.cli.webhook import webhook_of
from scheduler.extender.service import Service
from scheduler.model.documents import Document
from scheduler.settings import Settings
from scheduler.webhook.metrics import WebhookMetrics
from scheduler.webhook.server import Webhook
from tests.extender.embedded_service import embedded_service
from tests.testbed.pki import Authority

DEPLOY = Path(__file__).parents[2] / "deploy"


def issue(folder: Path, name: str = "hook") -> tuple[Path, Path, ssl.SSLContext]:
    """Issue a certificate and its key, with a context that trusts only their new authority."""
    authority = Authority(folder)
    issued = authority.server(name, ("localhost",))
    return issued.certificate, issued.key, ssl.create_default_context(cafile=authority.certificate)


def service(cert: Path, key: Path, **settings: Any) -> Service:
    """Create the real service over the sample cluster and documents."""
    settings = {"webhook_host": "127.0.0.1", "webhook_port": 0} | settings
    all_settings = Settings(tls_cert=cert, tls_key=key, **settings)
    nodes = read_nodes(DEPLOY / "nodes" / "mocked-16x1.yaml")
    return embedded_service(all_settings, nodes, _sample_documents())


@functools.cache
def _sample_documents() -> list[Document]:
    return [document for _, document in read_paths([DEPLOY / "samples"]).documents]


@asynccontextmanager
async def running_webhook(
    service: Service, metrics: WebhookMetrics | None = None
) -> AsyncIterator[Webhook]:
    """Run the webhook of a service that is ready."""
    webhook = webhook_of(service.planning, metrics or WebhookMetrics())
    async with service.running(), webhook.running():
        while service.planning.not_ready_reason():  # noqa: ASYNC110 - another thread makes it ready
            await asyncio.sleep(0.01)
        yield webhook
