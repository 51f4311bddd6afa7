"""Certificates of the webhook: one source, the right names, and an authority that stays."""

from base64 import b64decode

import pytest
from cryptography import x509

from tests.chart.rendering import Json, RefusedError, one, render

pytestmark = pytest.mark.usefixtures("helm_built")
CERTIFICATE_HOURS = 90 * 24  # cert-manager's default


def test_the_api_server_trusts_the_webhook_s_certificate() -> None:
    """It has the Service's DNS name, and the authority in the registration signed it."""
    objects = render()
    data = {name: b64decode(text) for name, text in one(objects, "Secret")["data"].items()}
    certificate = x509.load_pem_x509_certificate(data["tls.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    service = one(objects, "Service", "-webhook")["metadata"]
    host = f"{service['name']}.{service['namespace']}.svc"
    assert names.get_values_for_type(x509.DNSName) == [host]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(data["ca.crt"]))
    for webhook in one(objects, "MutatingWebhookConfiguration")["webhooks"]:
        assert b64decode(webhook["clientConfig"]["caBundle"]) == data["ca.crt"]


@pytest.mark.slow
def test_the_certificate_may_be_an_existing_secret_or_cert_manager_s() -> None:
    """An operator's Secret comes with its authority; cert-manager injects its own."""
    own = render(webhook={"existing": {"secretName": "mine", "caBundle": "QUJD"}})
    assert "Secret" not in {o["kind"] for o in own}
    volumes = one(own, "Deployment", "-webhook")["spec"]["template"]["spec"]["volumes"]
    assert "mine" in {v["secret"]["secretName"] for v in volumes if "secret" in v}
    configured = one(own, "MutatingWebhookConfiguration")
    assert {w["clientConfig"]["caBundle"] for w in configured["webhooks"]} == {"QUJD"}
    managed = render(webhook={"certManager": {"enabled": True}})
    assert "Secret" not in {o["kind"] for o in managed}
    certificate = one(managed, "Certificate", "-webhook")["metadata"]
    annotations = one(managed, "MutatingWebhookConfiguration")["metadata"]["annotations"]
    named = annotations["cert-manager.io/inject-ca-from"]
    assert named == f"{certificate['namespace']}/{certificate['name']}"
    issuer = {
        "certManager": {"enabled": True, "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}
    }
    own = render(webhook=issuer)
    assert "Issuer" not in {o["kind"] for o in own}
    assert one(own, "Certificate")["spec"]["issuerRef"] == issuer["certManager"]["issuerRef"]


def test_a_renewed_certificate_has_the_same_authority() -> None:
    """Replicas serve the old one for another minute, and the API server must trust both."""
    objects = render(webhook={"certManager": {"enabled": True}})
    served = one(objects, "Certificate", "-webhook")["spec"]
    assert not served.get("isCA", False)
    issuer = one(objects, served["issuerRef"]["kind"], served["issuerRef"]["name"])["spec"]
    [authority] = [
        o["spec"]
        for o in objects
        if o["kind"] == "Certificate" and o["spec"]["secretName"] != served["secretName"]
    ]
    assert issuer == {"ca": {"secretName": authority["secretName"]}}
    assert authority["isCA"] is True
    assert authority["commonName"]
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    assert int(authority["duration"].removesuffix("h")) > 20 * CERTIFICATE_HOURS
    root = one(objects, authority["issuerRef"]["kind"], authority["issuerRef"]["name"])
    assert root["spec"] == {"selfSigned": {}}


@pytest.mark.parametrize(
    "webhook",
    [
        {"existing": {"secretName": "mine"}},
        {"existing": {"secretName": "mine", "caBundle": "QUJD"}, "certManager": {"enabled": True}},
    ],
)
def test_an_incomplete_or_second_certificate_source_is_refused(webhook: Json) -> None:
    """An existing Secret needs its authority, and excludes cert-manager."""
    with pytest.raises(RefusedError, match=r"webhook\.existing\.secretName"):
        render(webhook=webhook)
