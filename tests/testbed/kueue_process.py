"""Kueue's manager on the test bed, installed by Kueue's own chart.

The chart's objects are applied as they are, with its roles, webhooks and conversions, but for what
needs a kubelet: the Deployment, and the Service, which leads to this machine. The program runs here
with the chart's configuration and the rights of its ServiceAccount.
"""

import base64
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml

from tests.testbed import binaries
from tests.testbed.api import Api, Json, apply_all
from tests.testbed.build_steps import run
from tests.testbed.control_plane import ControlPlane
from tests.testbed.processes import Process
from workbench.cluster.process import free_port

NAMESPACE = "kueue-system"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"
START_TIMEOUT_S = 180.0

WITHOUT_KUBELET = {"APIService", "Deployment", "PodDisruptionBudget"}
"""Kinds of the chart that are not applied. The APIService is of a server for `kubectl`'s lists of
pending workloads; without it, the API server's discovery would be incomplete."""


@contextmanager
def running_kueue(plane: ControlPlane, configuration: Mapping[str, object]) -> Iterator[Process]:
    """Install Kueue, and run its manager from the time at which its webhooks answer.

    Args:
        plane: control plane of the test bed's own; an API server elsewhere does not reach Kueue.
        configuration: Kueue's Configuration, without ports and certificates.

    Raises:
        GoMissingError, BuildFailedError: see `binaries`.
        StartFailedError: it did not become ready; the message ends with its log's tail.
    """
    program = binaries.build(["kueue"])["kueue"]
    with tempfile.TemporaryDirectory(prefix="kueue-") as folder:
        certificates = Path(folder) / "certificates"
        certificates.mkdir()
        health_port, webhook_port = free_port(), free_port()
        own = {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": "127.0.0.1", "port": webhook_port, "certDir": str(certificates),
            },
            "leaderElection": {"leaderElect": False},
            "featureGates": {"VisibilityOnDemand": False},
        }  # fmt: skip
        documents = _rendered({**configuration, **own}, Path(folder))
        plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        apply_all(plane.api, [_at_loopback(document, webhook_port) for document in documents])
        config = Path(folder) / "config.yaml"
        [settings] = [d for d in documents if d["kind"] == "ConfigMap"]
        config.write_text(settings["data"]["controller_manager_config.yaml"], encoding="utf-8")
        process = plane.process(
            "kueue",
            [str(program), f"--config={config}", "--zap-log-level=info"],
            environment={"KUBECONFIG": str(plane.kubeconfig_for(ACCOUNT))},
        )
        process.start()
        process.wait_ready(lambda: _mount(plane.api, certificates), timeout_s=START_TIMEOUT_S)
        url = f"http://127.0.0.1:{health_port}/readyz"
        process.wait_ready(lambda: _is_ready(url), timeout_s=START_TIMEOUT_S)
        try:
            yield process
        finally:
            process.stop()


def _rendered(configuration: Mapping[str, object], folder: Path) -> list[Json]:
    """Render Kueue's chart; return the documents that need no kubelet, CRDs first."""
    module = binaries.MODULES / "kueue"
    source = json.loads(
        run(
            ["go", "mod", "download", "-json", "sigs.k8s.io/kueue"],
            folder=module,
            environment=binaries.environment(),
        )
    )
    settings = yaml.safe_dump(dict(configuration))
    values = folder / "values.yaml"
    values.write_text(
        yaml.safe_dump({"managerConfig": {"controllerManagerConfigYaml": settings}}),
        encoding="utf-8",
    )
    command = [
        str(binaries.build(["helm"])["helm"]), "template", "kueue",
        f"{source['Dir']}/charts/kueue", f"--namespace={NAMESPACE}", f"--values={values}",
    ]  # fmt: skip
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    documents = [d for d in yaml.safe_load_all(text) if d and d["kind"] not in WITHOUT_KUBELET]
    return sorted(documents, key=lambda d: d["kind"] != "CustomResourceDefinition")


def _at_loopback(document: Json, port: int) -> Json:
    """Return the document with its webhook's Service as a name of this machine, on this port."""
    if document["kind"] == "Service":
        spec = {"type": "ExternalName", "externalName": "localhost"}
        return {**document, "spec": spec}
    conversion = document.get("spec", {}).get("conversion", {}).get("webhook")
    for webhook in [*document.get("webhooks", ()), *([conversion] if conversion else ())]:
        webhook["clientConfig"]["service"]["port"] = port
    return document


def _mount(api: Api, folder: Path) -> bool:
    """Write the Secret that Kueue fills with its certificate, as a kubelet; false: it is empty."""
    data = api.get(SECRET).get("data") or {}
    for name in ("tls.key", "tls.crt"):
        if name not in data:
            return False
        (folder / name).write_bytes(base64.b64decode(data[name]))
    return True


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
