"""The webhook's certificate, reloaded while it serves.

cert-manager or the operator renews a certificate every few weeks, and the kubelet then replaces the
files. A server that reads them once would serve the old certificate until it expires, and with
``failurePolicy: Fail`` no function pod would start after that.
"""

import asyncio
import ssl
from pathlib import Path

import structlog
from cryptography import x509

log = structlog.get_logger(__name__)
RELOAD_EVERY_S = 10.0  # renewals come days before the old certificate expires

_FileVersions = tuple[tuple[int, int, int], ...]


class CertificateError(Exception):
    """The certificate cannot be served; the message names the file, the reason and the remedy."""


class Certificates:
    """A certificate chain and its key, as an SSL context for new connections.

    Attributes:
        context: TLS context of the server; `renew` loads new files into it.
        expires_at_s: end of the served certificate, in seconds since the epoch.

    Raises:
        CertificateError: a file is not set, missing or unreadable, or the two do not match.
    """

    def __init__(self, cert: Path | None, key: Path | None) -> None:
        if cert is None or key is None:
            variable = "ESG_TLS_CERT" if cert is None else "ESG_TLS_KEY"
            raise CertificateError(
                f"the webhook serves TLS only, and {variable} is not set: set it to a PEM file"
            )
        self._files = (cert, key)
        self._versions = self._file_versions()
        self._problem = ""
        self.context, self.expires_at_s = self._load()

    def renew(self) -> bool:
        """Load changed files; true if the served certificate changed. Ignore unusable files."""
        try:
            versions = self._file_versions()
            if versions == self._versions:
                return False
            # Load into a new context first: a partial renewal must not be served.
            _, expires_at_s = self._load()
            self.context.load_cert_chain(*self._files)
        except (CertificateError, OSError) as error:
            # The two files may be written one after the other; the next check finds both.
            if str(error) != self._problem:
                log.error("renewed certificate cannot be served", problem=str(error))
            self._problem = str(error)
            return False
        self._versions, self._problem, self.expires_at_s = versions, "", expires_at_s
        log.info("certificate renewed", file=str(self._files[0]))
        return True

    async def follow(self, every_s: float = RELOAD_EVERY_S) -> None:
        """Check the files periodically until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            self.renew()

    def _file_versions(self) -> _FileVersions:
        """Stat the files; a Secret's file is a link, so its inode changes with its content."""
        versions = []
        for path in self._files:
            try:
                stat = path.stat()
            except OSError as error:
                raise CertificateError(f"{path}: {error.strerror}; it must be a PEM file") from None
            versions.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return tuple(versions)

    def _load(self) -> tuple[ssl.SSLContext, float]:
        """Load the files into a new context; return it and the end of their certificate."""
        cert, key = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for path in self._files:
            try:
                path.read_bytes()  # the error of ssl does not say which of the two is unreadable
            except OSError as error:
                raise CertificateError(f"{path}: {error.strerror}") from None
        try:
            # An encrypted key must not prompt for its password at the terminal.
            context.load_cert_chain(cert, key, password="")
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"{cert} and {key} are not a PEM certificate chain and its unencrypted key: {error}"
            ) from None
        try:
            # The first certificate of a chain is the server's own.
            expiry = x509.load_pem_x509_certificate(cert.read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as error:
            raise CertificateError(f"{cert}: cannot read its expiry date: {error}") from None
        return context, expiry.timestamp()
