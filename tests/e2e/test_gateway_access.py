"""Access to workflows by tokens of ServiceAccounts and Roles on a real API server."""

import httpx

from tests.e2e.documents import CRDS, configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, answers, gateway, running
from tests.e2e.test_gateway_selector import server
from tests.e2e.test_pods_from_demand import player
from tests.testbed.api import Json, apply_all, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.nodes import create_nodes
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import free_port

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [3]}


def account(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": "default"},
    }


def rights(name: str, workflow_name: str) -> list[Json]:
    """Let an account call one workflow."""
    rule = {
        "apiGroups": ["esg-scheduler.io"],
        "resources": ["workflows/infer"],
        "resourceNames": [workflow_name],
        "verbs": ["create"],
    }
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    metadata = {"name": f"call-{name}", "namespace": "default"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": metadata["name"],
    }
    return [
        {**rbac, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            **rbac,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


def token_of(plane: ControlPlane, name: str) -> str:
    """Request a token of an account, as the kubelet does for a pod."""
    answer = plane.api.request(
        "POST",
        f"/api/v1/namespaces/default/serviceaccounts/{name}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    token: str = answer["status"]["token"]
    return token


def test_only_tokens_with_the_right_are_answered(cluster):
    """A Role decides by workflow; no token and a wrong one are told apart from a missing right.

    The API server is asked about two tokens only: the others are not of its service accounts.
    """
    model_port, port = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    apply_all(cluster.api, [*documents_in(CRDS), *documents_in(RBAC)])
    documents = [profile("f", configuration(20)), workflow("w", "f"), server(model_port)]
    apply_all(cluster.api, [*documents, account("alice"), account("bob"), *rights("alice", "w")])
    create_nodes(cluster.api, gpu_nodes(1, 1))
    container = {"name": "server", "image": "none", "ports": [{"containerPort": model_port}]}
    spec = {"nodeName": "node-000", "containers": [container]}
    metadata = {"name": "f-0", "namespace": "default", "labels": {"app": "f"}}
    cluster.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = httpx.post(
            f"{url}/v2/models/w/infer",
            json={"inputs": [TENSOR]},
            headers=headers,
            trust_env=False,
            timeout=60,
        )
        return answer.status_code

    earlier = len(cluster.audit_log.read_text(encoding="utf-8").splitlines())
    settings = {"ESG_GATEWAY_PODS": "false", "ESG_GATEWAY_ACCESS": "true"}
    with (
        running(player(cluster, model_port), f"http://127.0.0.1:{model_port}/v2/models/f/ready"),
        running(gateway(cluster, port, environment=settings), f"{url}/v2/health/ready") as process,
    ):
        wait_until(lambda: answers(f"{url}/v2/models/w/ready"), what="the workflow is served")
        alice = token_of(cluster, "alice")
        assert [status(alice), status(alice)] == [200, 200]
        assert status(token_of(cluster, "bob")) == 403
        for forged in (f"{alice}x", f"{alice[:-8]}AAAAAAAA", "no-token", ""):
            assert status(forged) == 401
        audit_lines = cluster.audit_log.read_text(encoding="utf-8").splitlines()[earlier:]
        assert sum('"resource":"tokenreviews"' in line for line in audit_lines) == 2
        log = process.log.read_text(encoding="utf-8", errors="replace")
        assert alice not in log
        assert "Traceback" not in log
