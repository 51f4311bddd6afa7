"""The webhook's process in the end-to-end tests, with the rights of deploy/webhook-rbac.yaml."""

from tests.e2e.documents import documents_in
from tests.testbed import REPOSITORY
from tests.testbed.control_plane import ControlPlane
from tests.testbed.extender import loopback_registration, start_webhook
from workbench.cluster.process import free_port

USER = "esg-webhook"
RBAC = REPOSITORY / "deploy" / "webhook-rbac.yaml"
REGISTRATION = REPOSITORY / "deploy" / "webhook.yaml"


def start(plane: ControlPlane, **environment: str) -> int:
    """Start the webhook with further variables; return its port once it is ready.

    It is not registered.
    """
    for document in documents_in(RBAC):
        plane.api.apply(document)
    issued = plane.server_certificate("webhook")
    health_port, port = free_port(), free_port()
    start_webhook(
        plane,
        port=health_port,
        kubeconfig=plane.kubeconfig_for(USER),
        environment={
            "ESG_HEALTH_PORT": str(health_port),
            "ESG_WEBHOOK_PORT": str(port),
            "ESG_TLS_CERT": str(issued.certificate),
            "ESG_TLS_KEY": str(issued.key),
            **environment,
        },
    )
    return port


def start_registered(plane: ControlPlane, **environment: str) -> None:
    """Start the webhook, and have the API server call it for function pods."""
    port = start(plane, **environment)
    [registration] = [
        document
        for document in documents_in(REGISTRATION)
        if document["kind"] == "MutatingWebhookConfiguration"
    ]
    plane.api.apply(loopback_registration(plane, registration, port))
