"""The live page through a real API server's proxy, by the rights of who looks at it."""

import os
import socket
import ssl

import httpx
import pytest

from tests.e2e.documents import CRDS, configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, gateway, running
from tests.e2e.test_gateway_access import account, token_of
from tests.page.conftest import CHROMIUM, browser, visit
from tests.require import needing
from tests.testbed.api import Json, apply_all
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import EXTERNAL_KUBECONFIG
from workbench.cluster.process import free_port

__all__ = ["browser", "visit"]


def own_address() -> str:
    """Return this machine's address in its network; empty without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
    return "" if address.startswith("127.") else address


ADDRESS = own_address()  # the API server's proxy refuses the loopback
pytestmark = [
    pytest.mark.skipif(
        EXTERNAL_KUBECONFIG in os.environ, reason="an external cluster may not reach this machine"
    ),
    needing(CHROMIUM, "needs Debian's package chromium"),
    needing(ADDRESS, "needs an address besides the loopback"),
]


def may_proxy(name: str) -> list[Json]:
    """Let an account read from pods through the proxy."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    metadata = {"name": "proxy", "namespace": "default"}
    rule = {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "proxy"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    return [
        {**rbac, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {**rbac, "kind": "RoleBinding", "metadata": metadata, "roleRef": reference,
         "subjects": [subject]},
    ]  # fmt: skip


def put_gateway_pod(plane: ControlPlane) -> None:
    """Create a running pod at this machine's address, of a node that no kubelet watches."""
    container = {"name": "gateway", "image": "none"}
    spec = {"nodeName": "host", "containers": [container], "automountServiceAccountToken": False}
    metadata = {"name": "gateway-0", "namespace": "default"}
    plane.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    status = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
    plane.api.patch("/api/v1/namespaces/default/pods/gateway-0/status", {"status": status})


def test_the_api_servers_proxy_serves_the_page(cluster, visit):
    """All files and documents come through it; without the right to the proxy there is nothing."""
    port, health_port = free_port(), free_port()
    apply_all(cluster.api, [*documents_in(CRDS), *documents_in(RBAC)])
    documents = [profile("f", configuration(20)), workflow("w", "f")]
    apply_all(cluster.api, [*documents, account("alice"), account("bob"), *may_proxy("alice")])
    put_gateway_pod(cluster)
    path = f"/api/v1/namespaces/default/pods/gateway-0:{health_port}/proxy"
    url = f"{cluster.url}{path}"
    settings = {"ESG_PAGE": "true", "ESG_HEALTH_PORT": str(health_port), "ESG_HEALTH_HOST": "::"}
    ready = f"http://127.0.0.1:{port}/v2/health/ready"
    headers = {"Authorization": f"Bearer {token_of(cluster, 'alice')}"}
    with running(gateway(cluster, port, environment=settings), ready):
        visited = visit(url, extra_http_headers=headers, ignore_https_errors=True)
        assert "default/w" in visited.view("overview")
        assert "No FunctionServer is in use." in visited.view("functions")
        assert "No request was late." in visited.view("late")
        assert "no request none is known" in visited.view("late/none")
        assert {r.partition("/proxy/")[0] for r in visited.requests if r[:5] != "data:"} == {
            url.removesuffix("/proxy")
        }

        trusted = ssl.create_default_context(cafile=cluster.ca)
        bob = {"Authorization": f"Bearer {token_of(cluster, 'bob')}"}
        refused = httpx.get(f"{url}/", headers=bob, verify=trusted, trust_env=False)
        assert refused.status_code == 403
        assert "pods/proxy" in refused.text
