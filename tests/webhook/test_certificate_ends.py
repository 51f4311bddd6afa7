"""When the served certificate ends is told: nobody renews what nobody knows to end."""

import datetime as dt
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from scheduler.webhook.certificates import CertificateError, Certificates
from tests.webhook.serving import served, service

BEGAN = dt.datetime(1950, 1, 1, tzinfo=dt.UTC)
ENDS = dt.datetime(2031, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
GAUGE = "esg_webhook_certificate_expires_timestamp_seconds"


@cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(ends: dt.datetime, name: str = "hook") -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key().public_key())
        .serial_number(1)
        .not_valid_before(BEGAN)
        .not_valid_after(ends)
        .sign(key(), hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM)


def files(folder: Path, pem: bytes) -> tuple[Path, Path]:
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


def test_of_a_chain_the_first_counts(tmp_path: Path) -> None:
    """It is the server's own."""
    chain = certificate(ENDS) + certificate(ENDS + dt.timedelta(days=1))
    assert Certificates(*files(tmp_path, b"# mine\n" + chain)).ends_at_s == ENDS.timestamp()


async def test_the_metrics_follow_a_renewal(tmp_path: Path) -> None:
    """What counts is what is served: new files count when they are taken up."""
    later = ENDS + dt.timedelta(days=90)
    made = service(*files(tmp_path, certificate(ENDS)))
    assert made.metrics.registry.get_sample_value(GAUGE) == 0
    async with served(made) as webhook:
        assert made.metrics.registry.get_sample_value(GAUGE) == ENDS.timestamp()
        files(tmp_path, certificate(later, name="another"))
        assert made.metrics.registry.get_sample_value(GAUGE) == ENDS.timestamp()
        assert webhook.certificates.renew()
        assert made.metrics.registry.get_sample_value(GAUGE) == later.timestamp()


def test_a_certificate_that_has_ended_is_served_and_told(tmp_path: Path) -> None:
    """To end the service for it would take the scheduling away too."""
    long_ago = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    assert Certificates(*files(tmp_path, certificate(long_ago))).ends_at_s == long_ago.timestamp()


def test_a_certificate_without_a_readable_end_is_refused(tmp_path: Path) -> None:
    """OpenSSL would serve from its own form of a certificate; the message names the file."""
    pem = certificate(ENDS).replace(b" CERTIFICATE", b" TRUSTED CERTIFICATE")
    with pytest.raises(CertificateError, match=r"tls\.crt: when it ends cannot be read: "):
        Certificates(*files(tmp_path, pem))
