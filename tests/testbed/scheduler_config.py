"""Makes kube-scheduler's configuration for a test from the one that users get.

The tests run `deploy/kube-scheduler-config.yaml` itself, changed only where a test bed must: ports,
the way to the API server, no leader election.
"""

from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.testbed import REPOSITORY

TEMPLATE = REPOSITORY / "deploy" / "kube-scheduler-config.yaml"


def render(
    *,
    kubeconfig: Path,
    extender_port: int | None,
    qps: int = 5000,
    managed_resources: bool = True,
    percentage_of_nodes_to_score: int | None = None,
    scheduler_names: Sequence[str] = ("esg-scheduler",),
    max_backoff_s: int | None = None,
    verbs: Sequence[str] = ("filter", "prioritize", "bind", "preempt"),
) -> str:
    """The configuration as YAML.

    Args:
        kubeconfig: the scheduler's own.
        extender_port: of 127.0.0.1; None leaves the extender out.
        qps: the scheduler's requests to the API server a second; bursts may be twice that.
        managed_resources: False has the extender called for every pod.
        percentage_of_nodes_to_score: None leaves what the file says.
        scheduler_names: one profile each; they share the extender.
        max_backoff_s: longest pause before a pod is tried again; None leaves Kubernetes' 10 s.
        verbs: which calls the extender gets.
    """
    document = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    document["leaderElection"] = {"leaderElect": False}
    document["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": qps, "burst": 2 * qps}
    document["profiles"] = [{"schedulerName": name} for name in scheduler_names]
    if percentage_of_nodes_to_score is not None:
        document["percentageOfNodesToScore"] = percentage_of_nodes_to_score
    if max_backoff_s is not None:
        document["podMaxBackoffSeconds"] = max_backoff_s
    if extender_port is None:
        del document["extenders"]
        return yaml.safe_dump(document, sort_keys=False)
    extender = document["extenders"][0]
    extender["urlPrefix"] = f"http://127.0.0.1:{extender_port}"
    if not managed_resources:
        del extender["managedResources"]
    for verb in {"filter", "prioritize", "bind", "preempt"} - set(verbs):
        del extender[f"{verb}Verb"]
    if "prioritize" not in verbs:
        del extender["weight"]
    return yaml.safe_dump(document, sort_keys=False)
