"""A cluster that is there already (kind, say) in the place of the test bed's own control plane.

Its API server and controllers are its own. KWOK, kube-scheduler and our extender run here, as
against the test bed's; users are made by its own certificates API. What only a test bed can do, as
to stop the API server, skips the test that asks for it.
"""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.testbed import binaries, kubeconfig
from tests.testbed.api import Api, Json, tls_context, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.pki import Certificate, subject
from tests.testbed.processes import Guard, Process

ADMINISTRATORS = "system:masters"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
VALID_S = 86_400
"""Of users' certificates: as long as a run of the tests may take."""


class GivenClusterError(RuntimeError):
    """The cluster cannot be used; the message says why."""


class GivenCluster(ControlPlane):
    """The cluster of a kubeconfig, whose user must be an administrator by client certificate.

    Args:
        workdir: a folder of its own for keys and `logs/`; made if absent.
        given: the kubeconfig.

    Raises:
        GivenClusterError: it has no client certificate.
    """

    def __init__(self, workdir: Path, given: Path) -> None:  # a plain one makes its own authority
        self.logs = workdir / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._workdir = workdir
        self._network = None
        cluster, user = _chosen(given)
        self.url = cluster["server"]
        self.ca = _file(cluster, "certificate-authority", workdir / "ca.crt", given)
        self.admin = Certificate(
            certificate=_file(user, "client-certificate", workdir / "admin.crt", given),
            key=_file(user, "client-key", workdir / "admin.key", given),
        )
        self.kubeconfig = kubeconfig.write(
            workdir / "admin.kubeconfig", url=self.url, ca=self.ca, certificate=self.admin
        )
        self.api = Api(self.url, tls_context(self.ca, self.admin))
        self._users: dict[str, Certificate] = {}
        self._guard = Guard()
        self._processes: list[Process] = []
        self._parts: list[Process] = []
        self._nodes: set[str] = set()
        self._namespaces: set[str] = set()

    def start(self) -> None:
        """Remember what is there, and start KWOK.

        Raises:
            GivenClusterError: pods are in namespace `default`, where the tests delete them.
            GoMissingError, BuildFailedError: see `binaries`.
            StartFailedError: KWOK did not come up.
        """
        if self.api.items("/api/v1/namespaces/default/pods"):
            raise GivenClusterError(
                f"{self.url} has pods in namespace default: tests would delete them; use another"
            )
        self._nodes = {each["metadata"]["name"] for each in self.api.items("/api/v1/nodes")}
        namespaces = {each["metadata"]["name"] for each in self.api.items("/api/v1/namespaces")}
        self._namespaces = namespaces - {"default"}
        self._programs = binaries.build(["kube-scheduler", "kwok"])
        self.scheduler_kubeconfig = self.kubeconfig_for("system:kube-scheduler")
        self._start_kwok()
        self._parts = list(self._processes)

    def reset(self) -> None:
        """Stop what was started since, and bring KWOK back where it was stopped."""
        self._restore_parts()

    def is_left(self, kind: str, name: str) -> bool:
        """Whether it was there before the tests: it is not theirs to delete."""
        return name in {"Node": self._nodes, "Namespace": self._namespaces}[kind]

    def client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> Certificate:
        """A certificate that the cluster signs, by a request which is approved here."""
        if ADMINISTRATORS in groups:  # for these it signs none
            return self.admin
        if user not in self._users:
            self._users[user] = self._signed(user, groups)
        return self._users[user]

    def server_certificate(self, file_name: str, names: tuple[str, ...] = ()) -> Certificate:
        """Skip: its API server need not reach this machine, nor trust a certificate made here."""
        del file_name, names
        pytest.skip("the given cluster's API server is not made to call this machine")

    def _named(self, name: str) -> Process:
        found = [process for process in self._processes if process.name == name]
        if not found:
            pytest.skip(f"{name} of the given cluster is not ours to stop")
        return found[0]

    def _signed(self, user: str, groups: tuple[str, ...]) -> Certificate:
        stem = self._workdir / user.replace(":", "-")
        key = ec.generate_private_key(ec.SECP256R1())
        asked = x509.CertificateSigningRequestBuilder(subject(user, groups))
        made = self.api.create(
            {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"generateName": "esg-testbed-"},
                "spec": {
                    "signerName": "kubernetes.io/kube-apiserver-client",
                    "usages": ["client auth"],
                    "expirationSeconds": VALID_S,
                    "request": base64.b64encode(
                        asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
                    ).decode(),
                },
            }
        )
        path = f"{REQUESTS}/{made['metadata']['name']}"
        made["status"] = {
            "conditions": [
                {"type": "Approved", "status": "True", "reason": "Tests", "message": "by the tests"}
            ]
        }
        self.api.request("PUT", f"{path}/approval", made)

        def status() -> Json:
            found: Json = self.api.get(path)["status"]
            return found

        wait_until(lambda: "certificate" in status(), what=f"a certificate of {user} is signed")
        stem.with_suffix(".crt").write_bytes(base64.b64decode(status()["certificate"]))
        stem.with_suffix(".key").touch(mode=0o600)
        stem.with_suffix(".key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        self.api.delete(path)
        return Certificate(certificate=stem.with_suffix(".crt"), key=stem.with_suffix(".key"))


def _chosen(given: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Cluster and user of the current context."""
    told = yaml.safe_load(given.read_text(encoding="utf-8"))

    def named(kind: str, name: str) -> dict[str, Any]:
        [found] = [each[kind] for each in told[f"{kind}s"] if each["name"] == name]
        return dict(found)

    context = named("context", told["current-context"])
    return named("cluster", context["cluster"]), named("user", context["user"])


def _file(told: dict[str, Any], name: str, path: Path, given: Path) -> Path:
    """The file that a kubeconfig names, or one with the bytes that stand in it."""
    if f"{name}-data" in told:
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(told[f"{name}-data"]))
        return path
    if name in told:
        return (given.parent / told[name]).resolve()
    raise GivenClusterError(f"{given} has no {name}: tests know their user by a certificate")
