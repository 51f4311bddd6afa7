"""Kubeconfig files for all clients of the test bed, the project's and Kubernetes' own.

The file contains the certificates, so that it works from any folder.
"""

import base64
from pathlib import Path

import yaml

from tests.testbed.pki import Certificate


def write(path: Path, *, url: str, ca: Path, certificate: Certificate) -> Path:
    """Write a kubeconfig for the bearer of `certificate`; only its owner may read it."""
    user = {
        "client-certificate-data": _encoded(certificate.certificate),
        "client-key-data": _encoded(certificate.key),
    }
    cluster = {"server": url, "certificate-authority-data": _encoded(ca)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "user"}}],
        "current-context": "testbed",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
