"""The webhook's certificate, renewed while it serves.

Certificates in a cluster live for weeks and are renewed by cert-manager or by the operator; the
kubelet then puts the new files in the place of the old ones. A server that read them once would
serve on until the day they end, and with ``failurePolicy: Fail`` no pod would start from then on.
"""

import asyncio
import ssl
from pathlib import Path

import structlog
from cryptography import x509

log = structlog.get_logger(__name__)
LOOK_EVERY_S = 10.0  # renewals come days before the old certificate ends


class CertificateError(Exception):
    """The certificate cannot be served; the message says which file, why, and what to do."""


class Certificates:
    """A certificate chain and its key, as a context that new connections take them from.

    Attributes:
        context: for the server; new files are loaded into it.
        ends_at_s: when the certificate ends that it serves, in seconds since the epoch.

    Raises:
        CertificateError: a file is not set, not there, not readable, or they do not match.
    """

    def __init__(self, cert: Path | None, key: Path | None) -> None:
        for path, name in ((cert, "ESG_TLS_CERT"), (key, "ESG_TLS_KEY")):
            if path is None:
                raise CertificateError(
                    f"the webhook serves TLS alone, and {name} is not set: name a PEM file, or "
                    "unset ESG_WEBHOOK_PORT to serve without a webhook"
                )
        assert cert is not None and key is not None  # noqa: S101, PT018 - just looked at
        self._files = (cert, key)
        self._seen = self._looks()
        self._problem = ""
        self.context, self.ends_at_s = self._loaded()

    def renew(self) -> bool:
        """Take up changed files; whether there were any. Files that do not fit change nothing."""
        try:
            seen = self._looks()
            if seen == self._seen:
                return False
            # Into a context of its own first: half a renewal must not be served.
            _, ends_s = self._loaded()
            self.context.load_cert_chain(*self._files)
        except (CertificateError, OSError) as error:
            # The two files may be written one after the other; the next look finds both.
            if str(error) != self._problem:
                log.error("the renewed certificate cannot be served", problem=str(error))
            self._problem = str(error)
            return False
        self._seen, self._problem, self.ends_at_s = seen, "", ends_s
        log.info("the certificate was renewed", file=str(self._files[0]))
        return True

    async def follow(self, every_s: float = LOOK_EVERY_S) -> None:
        """Look at the files for ever."""
        while True:
            await asyncio.sleep(every_s)
            self.renew()

    def _looks(self) -> tuple[tuple[int, int, int], ...]:
        """What changes with a file, and with the link that a Secret's files are."""
        looks = []
        for path in self._files:
            try:
                stat = path.stat()
            except OSError as error:
                raise CertificateError(f"{path}: {error.strerror}; it must be a PEM file") from None
            looks.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return tuple(looks)

    def _loaded(self) -> tuple[ssl.SSLContext, float]:
        """A context with the files as they are, and when their certificate ends."""
        cert, key = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for path in self._files:
            try:
                path.read_bytes()  # ssl's own error does not tell which of the two it could not
            except OSError as error:
                raise CertificateError(f"{path}: {error.strerror}") from None
        try:
            # An encrypted key must not ask for its password at the terminal.
            context.load_cert_chain(cert, key, password="")
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"{cert} and {key} are no PEM certificate chain and its unencrypted key: {error}"
            ) from None
        try:
            # Of a chain the first is the server's own.
            ends = x509.load_pem_x509_certificate(cert.read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as error:
            raise CertificateError(f"{cert}: when it ends cannot be read: {error}") from None
        return context, ends.timestamp()
