"""The chart, installed by Helm on the test bed's control plane: everything but containers."""

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
        """Run Helm against the cluster."""
        where = ["--namespace", NAMESPACE, "--kubeconfig", str(self.cluster.kubeconfig)]
        return helm(command, RELEASE, *arguments, *where)

    def object(self, path: str) -> Json:
        """What the API server has, of the release's namespace where the path names none."""
        root = "" if path.startswith("/") else f"/api/v1/namespaces/{NAMESPACE}/"
        return self.api.get(f"{root}{path}")

    def policies(self) -> list[Json]:
        """The release's policies, as soon as the API server has looked at their expressions."""
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

        def checked() -> bool:
            return all("observedGeneration" in p.get("status", {}) for p in self.api.items(path))

        wait_until(checked, what="policies are checked", timeout_s=60)
        return self.api.items(path)

    def token(self, account: str, *, pod: Json | None = None) -> str:
        """A token of a ServiceAccount, as a kubelet has it made for a pod."""
        spec: Json = {}
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"],
            }  # fmt: skip
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made: str = self.api.request("POST", path, asked)["status"]["token"]
        return made

    @contextmanager
    def user(self, name: str) -> Iterator[Api]:
        """A client of that user."""
        api = self.cluster.api_as(self.cluster.client_certificate(name))
        yield api
        api.close()


@contextmanager
def installed(cluster: ControlPlane, chart: Path = CHART) -> Iterator[Installation]:
    """The chart with its defaults; nothing of it is left afterwards but its CRDs."""
    installation = Installation(cluster)
    installation.helm("install", str(chart), "--create-namespace")
    try:
        yield installation
    finally:
        # No kubelet is there to run the Job with which a removal ends.
        installation.helm("uninstall", "--wait", "--no-hooks")


class Bearer:
    """A client that shows a token.

    Args:
        cluster: whose API server is asked.
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
        """Merge a change into an object; what the API server says against it, or nothing."""
        answer = self._http.patch(
            path, json=change, headers={"Content-Type": "application/merge-patch+json"}
        )
        return "" if answer.is_success else str(answer.json()["message"])


def pod(name: str, **metadata: Json) -> Json:
    """A Pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }


def refusal(act: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """What the API server says against it; empty where it lets it pass."""
    try:
        act(*arguments, **named)
    except ApiError as error:
        return str(error)
    return ""
