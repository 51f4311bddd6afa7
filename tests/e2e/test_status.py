"""Status of documents on a real API server, as kubectl shows it and waits for it."""

import copy
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from scheduler.model.documents import STAGES_MAX
from tests.cluster.test_crds import nodes
from tests.e2e.documents import (
    API_VERSION,
    CRDS,
    configuration,
    documents_in,
    profile,
    workflow,
)
from tests.e2e.gateway_process import RBAC, answers, gateway, running
from tests.e2e.harness import EVENTS, Harness
from tests.e2e.test_pods_from_demand import player, pool, server
from tests.testbed import kubernetes_release
from tests.testbed.api import ApiError, apply_all, wait_until
from tests.testbed.audit import status_patches
from tests.testbed.extender import wait_extender
from tests.testbed.processes import Process
from workbench.cluster.process import free_port

DOCUMENTS = f"/apis/{API_VERSION}"
WORKFLOW = f"{DOCUMENTS}/namespaces/default/workflows/w"
SERVER = f"{DOCUMENTS}/namespaces/default/functionservers/f-server"
PROFILE = f"{DOCUMENTS}/functionprofiles/f"
SELECTOR = {"matchLabels": {"app": "f"}}
Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(cluster) -> Kubectl:
    """A function that runs kubectl as administrator and returns its output."""
    program = kubernetes_release.build(["kubectl"])["kubectl"]

    def run(*arguments: str) -> str:
        command = [program, f"--kubeconfig={cluster.kubeconfig}", *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": str(cluster.logs), "no_proxy": "*"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def served(esg) -> Iterator[tuple[Harness, Process, int, str]]:
    """The scheduler without documents; a gateway's process, model servers' port, its address."""
    harness = esg(nodes=2, gpus=1, documents=[])
    for document in documents_in(RBAC):
        harness.api.apply(document)
    model_port, port = free_port(), free_port()
    with ExitStack() as stack:
        played = player(harness.plane, model_port)
        url = f"http://127.0.0.1:{model_port}/v2/models/f/ready"
        stack.enter_context(running(played, url))
        url = f"http://127.0.0.1:{port}/v2/health/ready"
        process = stack.enter_context(running(gateway(harness.plane, port), url))
        yield harness, process, model_port, url


def conditions(harness: Harness, path: str) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition, by its type."""
    status = harness.api.get(path).get("status") or {}
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}


def message(harness: Harness, path: str, kind: str) -> str:
    """Return the message of a condition."""
    conditions = harness.api.get(path)["status"]["conditions"]
    text: str = next(c["message"] for c in conditions if c["type"] == kind)
    return text


def test_kubectl_waits_for_a_workflow_in_both_directions(served, kubectl):
    """A broken Workflow says what is missing, a mended one is ready, and back; each with an Event.

    Each change is one write, and a gateway that starts again writes nothing.
    """
    harness, process, model_port, url = served

    def wait(condition: str, document: str = "workflow/w") -> None:
        kubectl("wait", f"--for=condition={condition}", document, "--timeout=60s")

    harness.api.apply(workflow("w", "f", latency_ms=500))
    wait("Accepted=False")
    wait("Ready=False")
    states = conditions(harness, WORKFLOW)
    assert states["Accepted"] == ("False", "MissingProfile")
    assert states["Attainable"] == ("Unknown", "NotAccepted")
    assert states["Ready"] == ("False", "MissingProfile")

    harness.api.apply(profile("f", configuration(20, latency_ms=60)))
    wait("Accepted")
    wait("Attainable")
    wait("Used", "functionprofile/f")
    text = message(harness, WORKFLOW, "Attainable")
    assert "take 60 ms" in text
    assert "of 500 ms" in text
    assert "A100" in text

    wait_until(
        lambda: conditions(harness, WORKFLOW)["Ready"] == ("False", "NoFunctionServer"),
        what="the workflow has no server",
    )
    harness.api.apply(server(model_port))
    wait("Ready")
    wait("Ready", "functionserver/f-server")

    log = harness.plane.audit_log
    earlier = len(log.read_text(encoding="utf-8").splitlines())
    process.stop()
    process.start()
    process.wait_ready(lambda: answers(url), timeout_s=180)
    harness.api.delete(SERVER)
    wait("Ready=False")
    assert status_patches(log, "esg-gateway", after_lines=earlier) == ["workflows/w"]

    harness.api.apply(server(model_port))
    wait("Ready")
    reasons = {
        event["reason"]
        for event in harness.api.items(EVENTS, fieldSelector="involvedObject.kind=Workflow")
    }
    assert {"MissingProfile", "NoFunctionServer", "Served"} <= reasons


def test_another_extender_goes_on_where_one_was_killed(esg, kubectl):
    """It writes nothing that is written already, and what has changed once the Lease has ended."""
    documents = [profile("f", configuration(20, latency_ms=60)), workflow("w", "f")]
    harness = esg(nodes=1, gpus=1, documents=documents)
    plane = harness.plane
    kubectl("wait", "--for=condition=Attainable", "workflow/w", "--timeout=60s")
    kubectl("wait", "--for=condition=Used", "functionprofile/f", "--timeout=60s")
    harness.extender.kill()
    earlier = len(plane.audit_log.read_text(encoding="utf-8").splitlines())
    harness.extender.start()
    wait_extender(harness.extender, port=harness.port)
    harness.api.delete(PROFILE)
    kubectl("wait", "--for=condition=Accepted=False", "workflow/w", "--timeout=90s")
    patches = status_patches(plane.audit_log, "esg-scheduler", after_lines=earlier)
    assert patches == ["workflows/w"]


def test_kubectl_scales_a_function_server(served, kubectl):
    """`kubectl scale` has the gateway start pods without demand, and the status counts them.

    A FunctionServer of other pods refuses it, and columns show what the conditions say.
    """
    harness, _, model_port, _ = served
    harness.api.apply(profile("f", configuration(20, latency_ms=60)))
    harness.api.apply(workflow("w", "f", latency_ms=500))
    harness.api.apply(server(model_port, maxPods=3))
    kubectl("wait", "--for=condition=Ready", "functionserver/f-server", "--timeout=60s")
    kubectl("scale", "functionserver/f-server", "--replicas=2")
    wait_until(lambda: len(pool(harness)) == 2, what="the gateway starts two pods")
    kubectl("wait", "--for=jsonpath={.status.replicas}=2", "fs/f-server", "--timeout=60s")
    scale = harness.api.get(f"{SERVER}/scale")
    assert scale["spec"]["replicas"] == scale["status"]["replicas"] == 2
    assert scale["status"]["selector"] == "esg-scheduler.io/gateway-pool=f-server"
    header, row = kubectl("get", "fs").splitlines()
    cells = dict(zip(header.split(), row.split(), strict=True))
    assert (cells["READY"], cells["PODS"]) == ("True", "2")
    assert kubectl("get", "wf").split()[:7] == [
        "NAME", "SLO", "MS", "OBJECTIVE", "ACCEPTED", "ATTAINABLE", "READY",
    ]  # fmt: skip
    selected = server(model_port)
    selected["metadata"]["name"] = "selected"
    del selected["spec"]["template"]
    harness.api.apply(selected | {"spec": {**selected["spec"], "selector": SELECTOR}})
    with pytest.raises(AssertionError, match="replicas applies to a template"):
        kubectl("scale", "functionserver/selected", "--replicas=2")


def test_explain_describes_every_field(served, kubectl):
    """The schemas that `kubectl explain` reads have a text for each field of spec and status."""
    harness, *_ = served
    path = f"/openapi/v3/apis/{API_VERSION}"
    wait_until(lambda: harness.api.exists(path), what="the schemas are published")
    schemas = harness.api.get(path)["components"]["schemas"]
    for kind in ("Workflow", "FunctionProfile", "FunctionServer"):
        [schema] = [s for name, s in schemas.items() if name.endswith(f".{kind}")]
        paths = dict(nodes(schema))
        assert ".status.conditions.items.reason" in paths
        assert [path for path, node in paths.items() if not node.get("description")] == []
    assert "end-to-end latency in ms" in kubectl("explain", "workflow.spec.slo.latencyMs")


def test_a_cycle_from_before_the_rule_says_so(cluster, esg, kubectl):
    """The status of a document that admission would refuse by now can be written."""
    older = copy.deepcopy(documents_in(CRDS))
    [version] = older[0]["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["stages"]["x-kubernetes-validations"]
    apply_all(cluster.api, older)
    cyclic = workflow("w", "f", "g")
    cyclic["spec"]["stages"][0]["after"] = ["g"]
    wait_until(lambda: is_created(cluster.api, cyclic), what="the older CRD is in force")
    harness = esg(nodes=1, gpus=1, documents=[])
    kubectl("wait", "--for=condition=Accepted=False", "workflow/w", "--timeout=60s")
    assert conditions(harness, WORKFLOW)["Accepted"] == ("False", "Cycle")
    assert "f after g after f" in message(harness, WORKFLOW, "Accepted")


def is_created(api, document):
    """Create a document; return false while the API server refuses it."""
    try:
        api.create(document)
    except ApiError as error:
        if error.status != httpx.codes.UNPROCESSABLE_ENTITY:
            raise
        return False
    return True


@pytest.mark.parametrize("length", [2, 5])
def test_a_cycle_is_refused_at_admission(cluster, length):
    """The API server refuses stages that come after themselves, and accepts the largest DAG."""
    apply_all(cluster.api, documents_in(CRDS))
    cyclic = workflow("w", *(f"s{number}" for number in range(length)))
    cyclic["spec"]["stages"][0]["after"] = [f"s{length - 1}"]
    with pytest.raises(ApiError, match="a cycle"):
        cluster.api.create(cyclic)
    names = [f"s{number}" for number in range(STAGES_MAX)]
    dense = workflow("dense", *names)
    for number, stage in enumerate(dense["spec"]["stages"]):
        stage["after"] = names[:number]
    assert cluster.api.create(dense)
