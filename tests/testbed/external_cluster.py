"""An existing cluster (for example kind) instead of the test bed's own control plane.

The cluster has its own API server and controllers. KWOK, kube-scheduler and the extender run here;
the cluster's certificates API creates users. A test that needs more control, such as stopping the
API server, is skipped.
"""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.testbed import kubeconfig, kubernetes_release
from tests.testbed.api import Api, tls_context, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.pki import Certificate, subject, write_key
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard

ADMINISTRATORS = "system:masters"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
VALID_S = 86_400
"""Lifetime of users' certificates: longer than any test run."""


class ExternalClusterError(RuntimeError):
    """The cluster cannot be used; the message has the reason."""


class ExternalCluster(ControlPlane):
    """The cluster of a kubeconfig, whose user must be an administrator by client certificate.

    Args:
        workdir: an exclusive folder for keys and `logs/`; created if absent.
        source: the kubeconfig.

    Raises:
        ExternalClusterError: the kubeconfig has no client certificate.
    """

    def __init__(self, workdir: Path, source: Path) -> None:  # `super` would create an authority
        self.logs = workdir / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._workdir = workdir
        cluster, user = _current_context(source)
        self.url = cluster["server"]
        self.ca = _file(cluster, "certificate-authority", workdir / "ca.crt", source)
        self.admin = Certificate(
            certificate=_file(user, "client-certificate", workdir / "admin.crt", source),
            key=_file(user, "client-key", workdir / "admin.key", source),
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
        self._cordoned: list[str] = []
        self._namespaces: set[str] = set()

    def start(self) -> None:
        """Record existing nodes and namespaces, and start KWOK.

        Raises:
            ExternalClusterError: pods are in namespace `default`, where the tests delete them.
            GoMissingError, BuildFailedError: see `binaries`.
            StartFailedError: KWOK did not start.
        """
        if self.api.items("/api/v1/namespaces/default/pods"):
            raise ExternalClusterError(
                f"{self.url} has pods in namespace default, which tests would delete; "
                "use another cluster"
            )
        self._nodes = {node["metadata"]["name"] for node in self.api.items("/api/v1/nodes")}
        namespaces = self.api.items("/api/v1/namespaces")
        self._namespaces = {item["metadata"]["name"] for item in namespaces} - {"default"}
        self._programs = kubernetes_release.build(["kube-scheduler", "kwok"])
        self.scheduler_kubeconfig = self.kubeconfig_for("system:kube-scheduler")
        self._start_kwok()
        self._parts = list(self._processes)

    def cordon(self) -> None:
        """Keep pods of the tests off the cluster's own nodes until `stop`."""
        for name in self._nodes:
            path = f"/api/v1/nodes/{name}"
            if not self.api.get(path)["spec"].get("unschedulable"):
                self.api.patch(path, {"spec": {"unschedulable": True}})
                self._cordoned.append(path)

    def stop(self) -> None:
        """Undo `cordon`, and stop all programs; harmless when called twice."""
        while self._cordoned:
            self.api.patch(self._cordoned.pop(), {"spec": {"unschedulable": None}})
        super().stop()

    def reset(self) -> None:
        """Stop programs started since `start`, and restart KWOK if it is stopped."""
        self._restore_parts()

    def is_preexisting(self, kind: str, name: str) -> bool:
        """Return true if the object existed before the tests, which must not delete it."""
        return name in {"Node": self._nodes, "Namespace": self._namespaces}[kind]

    def client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> Certificate:
        """Request a certificate, approve the request, and return the certificate of the cluster."""
        if ADMINISTRATORS in groups:  # the cluster signs none for them
            return self.admin
        if user not in self._users:
            self._users[user] = self._signed(user, groups)
        return self._users[user]

    def server_certificate(self, file_name: str, names: tuple[str, ...] = ()) -> Certificate:
        """Skip the test: the API server need not reach this machine, nor trust its certificate."""
        del file_name, names
        pytest.skip("the external cluster's API server need not reach this machine")

    @property
    def audit_log(self) -> Path:
        """Skip the test: the audit log, if there is one, is the cluster's."""
        pytest.skip("the external cluster's audit log is not on this machine")

    def named(self, name: str) -> Process:
        """Return a program of this machine; skip the test for one of the cluster."""
        processes = [process for process in self._processes if process.name == name]
        if not processes:
            pytest.skip(f"{name} of the external cluster: tests cannot stop it")
        return processes[0]

    def _signed(self, user: str, groups: tuple[str, ...]) -> Certificate:
        file = self._workdir / f"{user.replace(':', '-')}.crt"
        key = ec.generate_private_key(ec.SECP256R1())
        csr = x509.CertificateSigningRequestBuilder(subject(user, groups))
        pem = csr.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        request = self.api.create(
            {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"generateName": "esg-testbed-"},
                "spec": {
                    "signerName": "kubernetes.io/kube-apiserver-client",
                    "usages": ["client auth"],
                    "expirationSeconds": VALID_S,
                    "request": base64.b64encode(pem).decode(),
                },
            }
        )
        path = f"{REQUESTS}/{request['metadata']['name']}"
        approval = {"type": "Approved", "status": "True", "reason": "Tests", "message": "by tests"}
        self.api.request(
            "PUT", f"{path}/approval", {**request, "status": {"conditions": [approval]}}
        )
        wait_until(
            lambda: "certificate" in self.api.get(path)["status"],
            what=f"a certificate of {user} is signed",
        )
        file.write_bytes(base64.b64decode(self.api.get(path)["status"]["certificate"]))
        self.api.delete(path)
        return Certificate(certificate=file, key=write_key(file.with_suffix(".key"), key))


def _current_context(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return cluster and user of the current context."""
    config = yaml.safe_load(source.read_text(encoding="utf-8"))

    def named(kind: str, name: str) -> dict[str, Any]:
        [entry] = [item[kind] for item in config[f"{kind}s"] if item["name"] == name]
        return dict(entry)

    context = named("context", config["current-context"])
    return named("cluster", context["cluster"]), named("user", context["user"])


def _file(entry: dict[str, Any], name: str, path: Path, source: Path) -> Path:
    """Return the file that a kubeconfig names, or write its embedded bytes to `path`."""
    if f"{name}-data" in entry:
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(entry[f"{name}-data"]))
        return path
    if name in entry:
        return (source.parent / entry[name]).resolve()
    raise ExternalClusterError(f"{source} has no {name}; use a user with a client certificate")
