"""Installation of the chart by Helm on the test bed's control plane, which runs no containers."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.chart.rendering import CHART, Json, helm
from tests.testbed.api import Api, ApiError, wait_until
from tests.testbed.control_plane import ControlPlane

RELEASE = "esg-scheduler"
NAMESPACE = "serving"
SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:"
PODS = "/api/v1/namespaces/default/pods"


class Installation:
    """A release on a control plane."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.api = cluster.api

    def helm(self, command: str, *arguments: str) -> str:
        """Run Helm on the release."""
        target = ["--namespace", NAMESPACE, "--kubeconfig", str(self.cluster.kubeconfig)]
        return helm(command, RELEASE, *arguments, *target)

    def object(self, path: str) -> Json:
        """Read an object; a path without a leading slash is in the release's namespace."""
        root = "" if path.startswith("/") else f"/api/v1/namespaces/{NAMESPACE}/"
        return self.api.get(f"{root}{path}")

    def policies(self) -> list[Json]:
        """Return the release's policies after the API server has type-checked their expressions."""
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

        def checked() -> bool:
            return all("observedGeneration" in p.get("status", {}) for p in self.api.items(path))

        wait_until(checked, what="policies are checked")
        return self.api.items(path)

    def token(self, account: str, *, pod: Json | None = None) -> str:
        """Request a token of a ServiceAccount; with a pod, bound to it as a kubelet does."""
        spec: Json = {}
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"],
            }  # fmt: skip
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token: str = self.api.request("POST", path, body)["status"]["token"]
        return token

    @contextmanager
    def user(self, name: str) -> Iterator[Api]:
        """Client with a certificate of that user."""
        api = self.cluster.api_as(self.cluster.client_certificate(name))
        yield api
        api.close()


@contextmanager
def installed(cluster: ControlPlane, chart: Path = CHART) -> Iterator[Installation]:
    """Install the chart with its defaults, and uninstall all of it but its CRDs."""
    installation = Installation(cluster)
    installation.helm("install", str(chart), "--create-namespace")
    try:
        yield installation
    finally:
        # --no-hooks: no kubelet would run the Job of the removal.
        installation.helm("uninstall", "--wait", "--no-hooks")


class Bearer:
    """Client that authenticates with a bearer token.

    Args:
        cluster: its API server receives the requests.
        token: of a ServiceAccount.
    """

    def __init__(self, cluster: ControlPlane, token: str) -> None:
        self._http = httpx.Client(
            base_url=cluster.url,
            verify=ssl.create_default_context(cafile=str(cluster.ca)),
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def patch(self, path: str, change: Mapping[str, Any]) -> str:
        """Merge a change into an object; return the API server's error, empty on success."""
        answer = self._http.patch(
            path, json=change, headers={"Content-Type": "application/merge-patch+json"}
        )
        return "" if answer.is_success else str(answer.json()["message"])

    def create(self, path: str, document: Json) -> str:
        """Create an object in a collection; return the API server's error, empty on success."""
        answer = self._http.post(path, json=document)
        return "" if answer.is_success else str(answer.json()["message"])


def pod(name: str, *, scheduler: str = "the-test", **metadata: Json) -> Json:
    """Pod with one container; only its scheduler binds it, by default none of the cluster's."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "i"}]},
    }


def refusal(act: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """Call a method of a client; return the API server's error, empty on success."""
    try:
        act(*arguments, **named)
    except ApiError as error:
        return str(error)
    return ""
