"""Certificate authority of a control plane, and the certificates that it signs.

The API server identifies users by client certificate: the common name is the user and each
organization a group. RBAC decides the rights of both.
"""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = dt.timedelta(days=30)
"""Longer than any test run, and short enough that a forgotten key expires soon."""
CLOCK_SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate and its private key, both PEM files; only the owner may read the key."""

    certificate: Path
    key: Path


class Authority:
    """Authority of one test bed. Keys are ECDSA P-256: RSA keys would add a second to its start.

    Args:
        folder: folder of all files; created if absent.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = subject("esg-scheduler test bed", ())
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        signed = (
            self._builder(self._name, self._key.public_key())
            .add_extension(constraints, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.crt"
        """The authority's own certificate, which clients and servers trust."""
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        self.key = write_key(folder / "ca.key", self._key)
        """Its key, for the controller that signs certificate requests."""

    def server(self, file_name: str, names: tuple[str, ...]) -> Certificate:
        """Issue a certificate for a server at 127.0.0.1 and these DNS names."""
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        alternatives = x509.SubjectAlternativeName([loopback, *map(x509.DNSName, names)])
        return self._issue(
            file_name, subject(file_name, ()), ExtendedKeyUsageOID.SERVER_AUTH, alternatives
        )

    def client(self, file_name: str, user: str, groups: tuple[str, ...] = ()) -> Certificate:
        """Issue a certificate that identifies its bearer as `user`, a member of `groups`."""
        return self._issue(file_name, subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def signing_key(self, file_name: str) -> Path:
        """Create a private key with which the API server signs service account tokens."""
        return write_key(self._folder / f"{file_name}.key", ec.generate_private_key(ec.SECP256R1()))

    def _issue(
        self,
        file_name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        path = self._folder / f"{file_name}.crt"
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return Certificate(certificate=path, key=write_key(path.with_suffix(".key"), key))

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + VALID_FOR)
        )


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    """Write a private key that only its owner may read; return its path."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            # The API server reads no token key in PKCS 8.
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return path


def subject(common_name: str, organizations: tuple[str, ...]) -> x509.Name:
    """Return the subject of a certificate for a user and its groups."""
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
