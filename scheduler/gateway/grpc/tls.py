"""TLS of the gRPC front: its certificate is read again when its files change."""

from pathlib import Path

import grpc


def tls_credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    """Return credentials for a server; every new connection sees a renewed certificate.

    gRPC keeps the last certificate that it could use, such as while only one file is renewed.

    Args:
        certificate: PEM file of the certificate chain.
        key: PEM file of its private key.

    Raises:
        OSError: a file cannot be read.
    """
    served = _read(certificate, key)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal served
        try:
            pair = _read(certificate, key)
        except OSError:  # between two versions of a Secret
            return None
        if pair == served:
            return None
        served = pair
        return grpc.ssl_server_certificate_configuration([pair])

    return grpc.dynamic_ssl_server_credentials(
        grpc.ssl_server_certificate_configuration([served]), renewed
    )


def _read(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    return key.read_bytes(), certificate.read_bytes()
