"""The chart on a real API server: its objects are valid, and its programs have enough rights."""

import importlib.util
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
from tests.testbed.extender import loopback_registration, start_extender, start_webhook
from tests.testbed.nodes import create_nodes
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("helm_built")]
SAMPLES = REPOSITORY / "deploy" / "samples"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LABELS = {
    "esg-scheduler.io/workflow": "image-classification",
    "esg-scheduler.io/stage": "super-resolution",
}


def test_the_chart_installs_upgrades_and_uninstalls(cluster: ControlPlane) -> None:
    """Every object is accepted, an upgrade keeps the certificate, and only the CRDs remain."""
    secret = "secrets/esg-scheduler-tls"
    with installed(cluster) as release:
        for policy in release.policies():
            assert "expressionWarnings" not in policy["status"].get("typeChecking", {})
        before = release.object(secret)["data"]
        release.helm("upgrade", str(CHART), "--no-hooks", "--set", "scheduler.replicas=3")
        assert release.object(secret)["data"] == before
        deployment = release.object(
            f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/esg-scheduler"
        )
        assert deployment["spec"]["replicas"] == 3
        [configuration] = release.api.items(HOOKS)
        for webhook in configuration["webhooks"]:
            assert webhook["clientConfig"]["caBundle"] == before["ca.crt"]
    assert cluster.api.items(HOOKS) == []
    assert not cluster.api.exists(f"/api/v1/namespaces/{NAMESPACE}/{secret}")
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert cluster.api.exists(f"{crds}/workflows.esg-scheduler.io")


def test_a_pod_with_only_labels_is_scheduled_for_a_user_with_role_edit(
    installation: Installation, cluster: ControlPlane, tmp_path: Path
) -> None:
    """The programs run with the chart's configuration, accounts, rights and guards."""
    logs = {name: cluster.logs / f"{name}.log" for name in ("extender", "webhook")}
    # The logs have what earlier tests of the control plane wrote.
    before = {name: log.stat().st_size if log.exists() else 0 for name, log in logs.items()}
    create_nodes(cluster.api, gpu_nodes(2, 2, cpu=64))
    for document in yaml.safe_load_all((SAMPLES / "profiles.yaml").read_text()):
        cluster.api.apply(document)
    start_webhook_of_the_chart(installation)  # first: an external cluster cannot call it
    health_url = start_programs_of_the_chart(installation)
    grant_role_edit(cluster.api, "editor")
    with installation.user("editor") as editor:
        workflows = list(yaml.safe_load_all((SAMPLES / "workflows.yaml").read_text()))
        wait_until(
            lambda: not refusal(editor.apply, workflows[0]),
            what="role edit may write workflows",
        )
        for document in workflows:
            editor.apply(document)
        profile = next(yaml.safe_load_all((SAMPLES / "profiles.yaml").read_text()))
        assert "403" in refusal(editor.apply, profile)
        wait_until(
            lambda: (
                not refusal(editor.create, pod("one", scheduler="default-scheduler", labels=LABELS))
            ),
            what="the webhook knows the workflow",
        )
        path = f"{PODS}/one"
        wait_until(lambda: editor.get(path)["spec"].get("nodeName"), what="the pod is bound")
        bound = editor.get(path)
    cluster.api.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/editor")
    assert bound["spec"]["schedulerName"] == "esg-scheduler"
    assert bound["metadata"]["annotations"][ANNOTATION_GPU].startswith("GPU-")
    lease = installation.object(
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/esg-scheduler"
    )
    assert lease["spec"]["holderIdentity"]
    log = (cluster.logs / "kube-scheduler.log").read_text(errors="replace")
    assert f'"{SERVICE_ACCOUNT}esg-scheduler" cannot' not in log
    for name, log in logs.items():
        assert b"RBAC: " not in log.read_bytes()[before[name] :]
    check_with_helm_test(installation, tmp_path, health_url)


def start_programs_of_the_chart(installation: Installation) -> str:
    """Start extender and kube-scheduler with the chart's settings and account.

    Only settings that need containers or a pod network differ: the ports.

    Returns:
        The URL of the extender's health port.
    """
    cluster = installation.cluster
    account = cluster.kubeconfig_for(f"{SERVICE_ACCOUNT}esg-scheduler")
    deployment = installation.object(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/esg-scheduler"
    )
    [extender] = [
        container
        for container in deployment["spec"]["template"]["spec"]["initContainers"]
        if container["name"] == "extender"
    ]
    port, health_port = free_port(), free_port()
    environment = {variable["name"]: variable["value"] for variable in extender["env"]}
    environment["ESG_HEALTH_PORT"] = str(health_port)
    start_extender(cluster, port=port, kubeconfig=account, environment=environment)
    config = yaml.safe_load(installation.object("configmaps/esg-scheduler")["data"]["config.yaml"])
    config["clientConnection"]["kubeconfig"] = str(account)
    config["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
    cluster.start_scheduler(yaml.safe_dump(config))
    return f"http://127.0.0.1:{health_port}"


def start_webhook_of_the_chart(installation: Installation) -> None:
    """Start the webhook with the chart's settings and account, and register it.

    Only settings that need containers or a pod network differ: ports, and the webhook's address,
    with a certificate of another authority.
    """
    cluster = installation.cluster
    deployment = installation.object(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/esg-scheduler-webhook"
    )
    [webhook] = deployment["spec"]["template"]["spec"]["containers"]
    health_port, webhook_port = free_port(), free_port()
    issued = cluster.server_certificate("webhook")
    environment = {variable["name"]: variable["value"] for variable in webhook["env"]} | {
        "ESG_HEALTH_PORT": str(health_port),
        "ESG_WEBHOOK_PORT": str(webhook_port),
        "ESG_TLS_CERT": str(issued.certificate),
        "ESG_TLS_KEY": str(issued.key),
    }
    account = cluster.kubeconfig_for(f"{SERVICE_ACCOUNT}esg-scheduler-webhook")
    start_webhook(cluster, port=health_port, kubeconfig=account, environment=environment)
    [hooks] = installation.api.items(HOOKS)
    registration = loopback_registration(cluster, hooks, webhook_port)
    installation.api.request("PUT", f"{HOOKS}/{hooks['metadata']['name']}", registration)


def grant_role_edit(api: Api, user: str) -> None:
    """Bind the cluster's role edit to the user in namespace default."""
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


def check_with_helm_test(installation: Installation, folder: Path, health_url: str) -> None:
    """Run the program of `helm test` with its account: it fails without webhook or extender."""
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
        program = load_module(CHART / "files" / "installed.py")
        assert program.main() == 0
        program.TIMEOUT_S = 0
        [hooks] = api.items(HOOKS)
        api.delete(f"{HOOKS}/{hooks['metadata']['name']}")
        wait_until(lambda: program.main() == 1, what="the program notices the missing webhook")
        with pytest.raises(program.CheckError, match="does not call the webhook"):
            program.check_webhook()
        patch.setenv("HEALTH_URL", f"http://127.0.0.1:{free_port()}")
        with pytest.raises(OSError, match="refused"):
            program.check_replica()


def load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
