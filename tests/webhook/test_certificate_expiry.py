"""The expiry date of the running_webhook certificate, for the metric that warns operators."""

import datetime as dt
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from scheduler.server.certificates import CertificateError, Certificates
from scheduler.webhook.metrics import WebhookMetrics
from tests.webhook.harness import running_webhook, service

NOT_BEFORE = dt.datetime(1950, 1, 1, tzinfo=dt.UTC)
NOT_AFTER = dt.datetime(2031, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
GAUGE = "esg_webhook_certificate_expires_timestamp_seconds"


@cache
def key():
    return ec.generate_private_key(ec.SECP256R1())


def certificate(ends, name="hook"):
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key().public_key())
        .serial_number(1)
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(ends)
        .sign(key(), hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM)


def files(folder, pem):
    cert, private = folder / "tls.crt", folder / "tls.key"
    cert.write_bytes(pem)
    private.write_bytes(
        key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert, private


def test_first_certificate_of_a_chain_counts(tmp_path):
    """The first certificate is the server's own."""
    chain = certificate(NOT_AFTER) + certificate(NOT_AFTER + dt.timedelta(days=1))
    assert Certificates(*files(tmp_path, b"# mine\n" + chain)).expires_at_s == NOT_AFTER.timestamp()


@pytest.mark.slow
async def test_metric_follows_a_renewal(tmp_path):
    """The metric shows the running_webhook certificate: new files count once they are loaded."""
    later = NOT_AFTER + dt.timedelta(days=90)
    metrics = WebhookMetrics()
    registry = metrics.registry
    async with running_webhook(
        service(*files(tmp_path, certificate(NOT_AFTER))), metrics
    ) as webhook:
        assert registry.get_sample_value(GAUGE) == NOT_AFTER.timestamp()
        files(tmp_path, certificate(later, name="another"))
        assert registry.get_sample_value(GAUGE) == NOT_AFTER.timestamp()
        assert webhook.certificates.renew()
        assert registry.get_sample_value(GAUGE) == later.timestamp()


def test_expired_certificate_is_served_and_reported(tmp_path):
    """An exit of the service would stop scheduling too."""
    expiry = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    assert Certificates(*files(tmp_path, certificate(expiry))).expires_at_s == expiry.timestamp()


def test_certificate_without_readable_expiry_date_is_refused(tmp_path):
    """OpenSSL would serve its own TRUSTED CERTIFICATE form; the message names the file."""
    pem = certificate(NOT_AFTER).replace(b" CERTIFICATE", b" TRUSTED CERTIFICATE")
    with pytest.raises(CertificateError, match=r"tls\.crt: cannot read its expiry date: "):
        Certificates(*files(tmp_path, pem))
