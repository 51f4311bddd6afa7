"""Time from a pod's creation to its Binding on a real control plane, with and without a claim.

Pods come one at a time, with a claim and without in turn, so that the ratio of each pair holds when
the machine's speed drifts. The bind call itself is the extender's own histogram.

    python -m bench.claims [--pairs 50]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import httpx
from prometheus_client.parser import text_string_to_metric_families

from scheduler.model.names import RESOURCE_CLAIM
from tests.e2e.documents import CRDS, SAMPLES, documents_in
from tests.testbed import scheduler_config
from tests.testbed.api import apply_all, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.extender import start_extender
from tests.testbed.nodes import create_nodes
from tests.testbed.pods import function_pod
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import free_port

PODS = "/api/v1/namespaces/default/pods"
POLL_S = 0.002
CLAIMED, PLAIN = "with a claim", "without"


def main() -> int:
    """Run, and print medians and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.claims", description=__doc__)
    parser.add_argument("--pairs", type=int, default=50)
    options = parser.parse_args()
    bound_s: dict[str, list[float]] = {CLAIMED: [], PLAIN: []}
    binds_s: dict[str, list[float]] = {CLAIMED: [], PLAIN: []}
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        port = _start(plane)
        for number in range(-2, options.pairs):  # two pairs to warm up
            kinds = (CLAIMED, PLAIN) if number % 2 else (PLAIN, CLAIMED)
            for kind in kinds:
                before_s = _bind_s(port)
                seconds = _bound_after_s(plane, f"p{number + 2}", claimed=kind is CLAIMED)
                if number >= 0:
                    bound_s[kind].append(seconds)
                    binds_s[kind].append(_bind_s(port) - before_s)
    for what, samples in (("creation to Binding", bound_s), ("bind call", binds_s)):
        for kind, seconds_of_kind in samples.items():
            print(f"{what:<20} {kind:<13} median {median(seconds_of_kind) * 1000:7.1f} ms")
    for name, samples in (("claims_vs_none", bound_s), ("bind_claims_vs_none", binds_s)):
        pairs = zip(samples[CLAIMED], samples[PLAIN], strict=True)
        print(f"{name}: {median(a / b for a, b in pairs):.2f}")
    return 0


def _start(plane: ControlPlane) -> int:
    """Start extender and kube-scheduler over a few nodes; return the extender's port."""
    for path in (CRDS, SAMPLES):
        apply_all(plane.api, documents_in(path))
    create_nodes(plane.api, gpu_nodes(4, 8, cpu=512))
    port = free_port()
    start_extender(plane, port=port, environment={"ESG_RESOURCE_CLAIMS": "true"})
    plane.start_scheduler(
        scheduler_config.render(
            kubeconfig=plane.scheduler_kubeconfig, extender_port=port, managed_resources=False
        )
    )
    return port


def _bound_after_s(plane: ControlPlane, name: str, *, claimed: bool) -> float:
    """Create a pod and wait until it is bound; delete it. Return the time, seconds."""
    pod = function_pod(
        name,
        workflow="image-classification",
        stage="super-resolution",
        annotations={"mock-run": "forever"},
    )
    if claimed:
        pod["spec"]["resourceClaims"] = [{"name": RESOURCE_CLAIM, "resourceClaimName": name}]
        container = pod["spec"]["containers"][0]
        container.setdefault("resources", {})["claims"] = [{"name": RESOURCE_CLAIM}]
    began_s = time.monotonic()
    plane.api.create(pod)
    wait_until(
        lambda: plane.api.get(f"{PODS}/{name}")["spec"].get("nodeName"),
        what=f"{name} is bound",
        pause_s=POLL_S,
    )
    seconds = time.monotonic() - began_s
    plane.api.delete(f"{PODS}/{name}", grace_s=0)
    wait_until(lambda: not plane.api.exists(f"{PODS}/{name}"), what=f"{name} is gone")
    return seconds


def _bind_s(port: int) -> float:
    """Return the duration of all bind calls so far, seconds."""
    return sum(_bind_samples(port))


def _bind_samples(port: int) -> Iterator[float]:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=60).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            is_bind = sample.labels.get("verb") == "bind"
            if sample.name == "esg_extender_request_duration_seconds_sum" and is_bind:
                yield sample.value


if __name__ == "__main__":
    sys.exit(main())
