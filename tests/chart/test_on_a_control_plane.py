"""The chart on a real API server: it is taken, and its programs work with the rights it gives."""

import importlib.util
from base64 import b64encode
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from scheduler.model.names import ANNOTATION_GPU
from tests.chart.installation import (
    NAMESPACE,
    PODS,
    SERVICE_ACCOUNT,
    Installation,
    installed,
    pod,
    refusal,
)
from tests.chart.rendering import CHART, one, render
from tests.testbed import REPOSITORY
from tests.testbed.api import Api, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.extender import start_extender
from tests.testbed.nodes import create_nodes, gpu_nodes
from tests.testbed.processes import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("helm_is_there")]
SAMPLES = REPOSITORY / "deploy" / "samples"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LABELS = {
    "esg-scheduler.io/workflow": "image-classification",
    "esg-scheduler.io/stage": "super-resolution",
}


def test_it_is_installed_upgraded_and_removed(cluster: ControlPlane) -> None:
    """Every object is taken, an upgrade keeps the certificate, and nothing stays but the CRDs."""
    secret = "secrets/esg-scheduler-tls"
    with installed(cluster) as made:
        for policy in made.policies():
            assert "expressionWarnings" not in policy["status"].get("typeChecking", {})
        before = made.object(secret)["data"]
        made.helm("upgrade", str(CHART), "--set", "scheduler.replicas=3")
        assert made.object(secret)["data"] == before
        deployment = made.object(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/esg-scheduler")
        assert deployment["spec"]["replicas"] == 3
        [configuration] = made.api.items(HOOKS)
        for webhook in configuration["webhooks"]:
            assert webhook["clientConfig"]["caBundle"] == before["ca.crt"]
    assert cluster.api.items(HOOKS) == []
    assert not cluster.api.exists(f"/api/v1/namespaces/{NAMESPACE}/{secret}")
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert cluster.api.exists(f"{crds}/workflows.esg-scheduler.io")


def test_whoever_edits_a_namespace_sends_a_workflow_s_pod_with_nothing_but_labels(
    installation: Installation, cluster: ControlPlane, tmp_path: Path
) -> None:
    """The chart's configuration, rights and guards, with its programs run as its accounts."""
    create_nodes(cluster.api, gpu_nodes(2, 2, cpu=64))
    for document in yaml.safe_load_all((SAMPLES / "profiles.yaml").read_text()):
        cluster.api.apply(document)
    health_url = start_as_the_chart_does(installation)
    granted_edit(cluster.api, "maker")
    with installation.user("maker") as maker:
        workflows = list(yaml.safe_load_all((SAMPLES / "workflows.yaml").read_text()))
        wait_until(
            lambda: not refusal(maker.apply, workflows[0]), what="edit has workflows", timeout_s=30
        )
        for document in workflows:
            maker.apply(document)
        profile = next(yaml.safe_load_all((SAMPLES / "profiles.yaml").read_text()))
        assert "403" in refusal(maker.apply, profile)
        wait_until(
            lambda: not refusal(maker.create, pod("one", labels=LABELS)),
            what="the webhook knows the workflow",
        )
        path = f"{PODS}/one"
        wait_until(
            lambda: maker.get(path)["spec"].get("nodeName"), what="the pod is bound", timeout_s=60
        )
        bound = maker.get(path)
    cluster.api.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/maker")
    assert bound["spec"]["schedulerName"] == "esg-scheduler"
    assert bound["metadata"]["annotations"][ANNOTATION_GPU].startswith("GPU-")
    lease = installation.object(
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/esg-scheduler"
    )
    assert lease["spec"]["holderIdentity"]
    log = (cluster.logs / "kube-scheduler.log").read_text(errors="replace")
    assert f'"{SERVICE_ACCOUNT}esg-scheduler" cannot' not in log
    asks_whether_it_works(installation, tmp_path, health_url)


def start_as_the_chart_does(installation: Installation) -> str:
    """Extender and kube-scheduler with the chart's own settings, as its account; where it is seen.

    Changed is what wants containers and a network of pods: ports, and the webhook's address, for
    which the API server must know another certificate.
    """
    cluster = installation.cluster
    account = cluster.kubeconfig_for(f"{SERVICE_ACCOUNT}esg-scheduler")
    deployment = installation.object(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/esg-scheduler"
    )
    [extender] = [
        each
        for each in deployment["spec"]["template"]["spec"]["initContainers"]
        if each["name"] == "extender"
    ]
    port, health_port, webhook_port = free_port(), free_port(), free_port()
    issued = cluster.server_certificate("webhook")
    environment = {each["name"]: each["value"] for each in extender["env"]} | {
        "ESG_HEALTH_PORT": str(health_port),
        "ESG_WEBHOOK_PORT": str(webhook_port),
        "ESG_TLS_CERT": str(issued.certificate),
        "ESG_TLS_KEY": str(issued.key),
    }
    del environment["NUMBA_CACHE_DIR"]
    start_extender(cluster, port=port, kubeconfig=account, environment=environment)
    [hooks] = installation.api.items(HOOKS)
    hooks["webhooks"] = [
        {
            **each,
            "clientConfig": {
                "url": f"https://127.0.0.1:{webhook_port}/mutate",
                "caBundle": b64encode(cluster.ca.read_bytes()).decode(),
            },
        }
        for each in hooks["webhooks"]
    ]
    installation.api.request("PUT", f"{HOOKS}/{hooks['metadata']['name']}", hooks)
    config = yaml.safe_load(installation.object("configmaps/esg-scheduler")["data"]["config.yaml"])
    config["clientConnection"]["kubeconfig"] = str(account)
    config["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
    cluster.start_scheduler(yaml.safe_dump(config))
    return f"http://127.0.0.1:{health_port}"


def granted_edit(api: Api, user: str) -> None:
    """Let the user edit namespace default, by the cluster's own role."""
    group = "rbac.authorization.k8s.io"
    api.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
    )


def asks_whether_it_works(installation: Installation, folder: Path, health_url: str) -> None:
    """`helm test`'s program, with the rights of its account: all is well, until it is not."""
    api = installation.api
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        api.apply(one(render(release="esg-scheduler", namespace=NAMESPACE), kind, "-test"))
    (folder / "token").write_text(installation.token("esg-scheduler-test"))
    (folder / "ca.crt").write_bytes(installation.cluster.ca.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        host, _, port = installation.cluster.url.removeprefix("https://").partition(":")
        patch.setenv("KUBERNETES_SERVICE_HOST", host)
        patch.setenv("KUBERNETES_SERVICE_PORT", port)
        patch.setenv("NAMESPACE", "serving")
        patch.setenv("HEALTH_URL", health_url)
        patch.setenv("SERVICE_ACCOUNT", str(folder))
        program = loaded(CHART / "files" / "installed.py")
        assert program.main() == 0
        program.TIMEOUT_S = 0
        [hooks] = api.items(HOOKS)
        api.delete(f"{HOOKS}/{hooks['metadata']['name']}")
        wait_until(lambda: program.main() == 1, what="the webhook is missed")
        with pytest.raises(program.CheckError, match="does not call the webhook"):
            program.check_webhook()
        patch.setenv("HEALTH_URL", f"http://127.0.0.1:{free_port()}")
        with pytest.raises(OSError, match="refused"):
            program.check_replica()


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
