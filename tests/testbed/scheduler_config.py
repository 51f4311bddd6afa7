"""Configuration of kube-scheduler for tests, derived from the users' file.

The tests run `deploy/kube-scheduler-config.yaml` itself with the changes that a test bed needs:
ports, access to the API server, no leader election.
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
    scheduler_names: Sequence[str] = ("esg-scheduler",),
    max_backoff_s: int | None = None,
    verbs: Sequence[str] = ("filter", "prioritize", "bind", "preempt"),
) -> str:
    """Return the configuration as YAML.

    Args:
        kubeconfig: kubeconfig of the scheduler.
        extender_port: port on 127.0.0.1; None: no extender.
        qps: limit of requests per second to the API server; bursts may be twice as high.
        managed_resources: False: kube-scheduler calls the extender for every pod.
        scheduler_names: one profile per name; they share the extender.
        max_backoff_s: longest pause before a retry of a pod; None: Kubernetes' 10 s.
        verbs: calls that the extender receives.
    """
    document = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    document["leaderElection"] = {"leaderElect": False}
    document["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": qps, "burst": 2 * qps}
    document["profiles"] = [{"schedulerName": name} for name in scheduler_names]
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
