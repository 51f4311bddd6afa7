"""A release of the chart on the real node, installed by Helm."""

from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from scheduler.model.grant import grant_of
from scheduler.model.names import GROUP, RESOURCE_GPU_PERCENT
from scheduler.model.node import Gpu, node_from_json
from scheduler.model.pod import has_ended
from scheduler.model.pod_resources import requested_gpu_percent
from tests.chart.rendering import CHART, helm
from tests.node.functions import DEPLOYMENTS, LABELS, PODS, PROFILE, WORKFLOW, container
from tests.node.real_cluster import MOCKS, NAME, NODE, RealCluster, is_ready
from tests.testbed.api import ApiError, Json, wait_until

RELEASE = "esg-scheduler"
NAMESPACE = "esg-scheduler"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
READY_TIMEOUT_S = 300
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HEALTH_PORT = 8890
_FREE = {"requests": {"cpu": "0"}}
"""On two CPUs, a function pod of one CPU must fit in addition to the chart."""

VALUES: Json = {
    "scheduler": {
        "nodeSelector": {"kubernetes.io/hostname": NAME},
        "kubeScheduler": {"resources": _FREE},
        "extender": {"resources": _FREE},
    },
    "webhook": {"resources": _FREE},
    "agent": {
        "resources": _FREE,
        "settings": {"mps_control": f"{MOCKS}/nvidia-cuda-mps-control", "mps_stop_s": 1},
        "extraEnv": [
            {"name": "FAKE_NVML", "value": f"{MOCKS}/gpus"},
            {"name": "LD_LIBRARY_PATH", "value": MOCKS},
        ],
        "extraVolumes": [{"name": "mocks", "hostPath": {"path": MOCKS, "type": "Directory"}}],
        "extraVolumeMounts": [{"name": "mocks", "mountPath": MOCKS}],
    },
    "mps": {"resources": _FREE},
    "gateway": {
        "resources": _FREE,
        "pods": {"namespaces": ["default"]},
        "service": {"type": "NodePort"},
    },
}
"""Values for a node with two CPUs and without NVIDIA's programs; all others are defaults."""


class Release:
    """A release of the chart.

    Args:
        cluster: kind cluster in which it is installed.
    """

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.api = cluster.api

    def ensure_installed(self) -> None:
        """Install it unless it is installed; return when it is ready."""
        if not self.is_installed():
            self.remove()
            self.install("install")
        self.until_ready()

    def install(
        self, command: str, chart: Path = CHART, *, stack: str = "", **changed: Json
    ) -> None:
        """Install or upgrade it with `VALUES` and further values, by top-level key.

        Args:
            command: `install` or `upgrade`.
            chart: the chart's folder.
            stack: name of a file of the chart's `stacks/`.
            changed: values that replace those of `VALUES`.
        """
        values = self.cluster.plane.logs.with_name("values.yaml")
        values.write_text(yaml.safe_dump({**VALUES, **changed}), encoding="utf-8")
        files = [chart / "stacks" / f"{stack}.yaml"] if stack else []
        options = [f"--values={path}" for path in (*files, values)]
        self._helm(command, RELEASE, str(chart), "--create-namespace", *options)

    def test(self) -> str:
        """Run `helm test` and return its output; raise an error if its pod fails."""
        return self._helm("test", RELEASE)

    def is_installed(self) -> bool:
        """Return true if Helm lists it."""
        return RELEASE in self._helm("list", "--short").split()

    def uninstall(self) -> str:
        """Uninstall it if it is installed; return its Job's output when its pods are deleted."""
        output = self._helm("uninstall", RELEASE, "--wait", "--ignore-not-found", with_log=True)
        wait_until(
            lambda: not self.cluster.pods(NAMESPACE, instance=RELEASE),
            what="the chart's pods are deleted",
            timeout_s=READY_TIMEOUT_S,
        )
        return output

    def remove(self) -> None:
        """Uninstall it, and delete what a failed test may have left: functions and changed CRDs."""
        for path in (DEPLOYMENTS, PODS):
            self.api.delete(path)
        self.uninstall()
        for path in self._crds():
            self.api.delete(path)
        wait_until(
            lambda: not self.api.items(PODS) and not self._crds(),
            what="functions and CRDs are deleted",
            timeout_s=READY_TIMEOUT_S,
        )

    def _crds(self) -> list[str]:
        """Return the paths of the chart's CRDs."""
        crds = [crd for crd in self.api.items(CRDS) if crd["spec"]["group"] == GROUP]
        return [f"{CRDS}/{crd['metadata']['name']}" for crd in crds]

    def _helm(self, command: str, *arguments: str, with_log: bool = False) -> str:
        where = ["--namespace", NAMESPACE, "--kubeconfig", str(self.cluster.plane.kubeconfig)]
        return helm(command, *arguments, *where, with_log=with_log)

    def pods(self, component: str) -> list[Json]:
        """Return the pods of a component: `scheduler`, `webhook`, `agent` or `gateway`."""
        return self.cluster.pods(NAMESPACE, instance=RELEASE, component=component)

    def until_ready(self) -> None:
        """Wait until two replicas and the agent are ready, and the node offers all GPUs."""
        self.until_scheduling()
        self.until_offers(100 * len(self.cluster.gpus.uuids))

    def until_scheduling(self) -> None:
        """Wait until all replicas and the agent are ready, and one of them leads."""

        def is_so() -> bool:
            names = ("scheduler", "webhook", "agent", "gateway")
            ready = [[is_ready(pod) for pod in self.pods(name)] for name in names]
            return ready == [[True, True], [True, True], [True], [True]] and bool(self.leader())

        wait_until(is_so, what="the chart's pods are ready", timeout_s=READY_TIMEOUT_S, pause_s=0.3)

    def until_offers(self, percent: int) -> None:
        """Wait until the node's healthy GPUs offer this percent.

        What the node offers covers also the requests of pods whose GPU is unhealthy.
        """
        wait_until(
            lambda: self.offered() - self._requested_of_unhealthy() == percent,
            what=f"the node offers {percent} % of a GPU",
            timeout_s=READY_TIMEOUT_S,
        )

    def offered(self) -> int:
        """Return the GPU percent that the node offers."""
        return int(self.api.get(NODE)["status"]["allocatable"].get(RESOURCE_GPU_PERCENT, "0"))

    def _requested_of_unhealthy(self) -> int:
        """Return the GPU percent that pods request whose GPU is not healthy."""
        healthy = {gpu.uuid for gpu in self.gpus() if gpu.healthy}
        return sum(
            requested_gpu_percent(pod)
            for pod in self.api.items("/api/v1/pods")
            if (grant := grant_of(pod)) and grant.gpu_uuid not in healthy and not has_ended(pod)
        )

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the node's inventory as the scheduler reads it."""
        return node_from_json(self.api.get(NODE)).gpus

    def documents(self, context: Json | None = None) -> None:
        """Apply the sample function and its workflow; return when the webhook admits its pod.

        Args:
            context: the container's securityContext.
        """
        for document in (PROFILE, WORKFLOW):
            self.api.apply(document)
        pod = {
            "metadata": {"name": "probe", "labels": LABELS},
            "spec": {
                "containers": [container() | ({"securityContext": context} if context else {})]
            },
        }

        def is_admitted() -> bool:
            try:
                self.api.request("POST", PODS, pod, query={"dryRun": "All"})
            except ApiError:
                return False
            return True

        wait_until(is_admitted, what="the webhook knows the function", timeout_s=READY_TIMEOUT_S)

    def granted_ratio(self, gpu: str) -> float:
        """Return the granted share of a GPU, from the leader's metrics."""
        path = f"{self.api.path(self.leading_pod())}:{HEALTH_PORT}/proxy/metrics"
        text = self.api.get(path)["message"]
        labels = {"gpu": gpu, "node": NAME}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "esg_gpu_granted_ratio" and sample.labels == labels:
                    return sample.value
        return 0

    def leading_pod(self) -> Json:
        """Return the pod of the leading kube-scheduler."""
        leader = self.leader()
        [pod] = [pod for pod in self.pods("scheduler") if pod["metadata"]["name"] == leader]
        return pod

    def leader(self) -> str:
        """Return the name of the leading kube-scheduler's pod; empty without a leader."""
        try:
            holder: str = self.api.get(LEASE)["spec"].get("holderIdentity") or ""
        except ApiError as error:
            if error.status != 404:
                raise
            return ""
        return holder.split("_", maxsplit=1)[0]
