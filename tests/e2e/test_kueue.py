"""Kueue in front of the scheduler: queues by percent of GPUs, with the manifests of docs/queues.md.

Kueue's manager is the real one, and the pods go through both webhooks, Kueue's and ours.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest
import yaml

from tests.e2e import webhook_process
from tests.e2e.documents import API_VERSION, configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, answers, gateway, running
from tests.e2e.harness import PODS, Harness
from tests.e2e.test_pods_from_demand import player, server
from tests.testbed import REPOSITORY, binaries
from tests.testbed.api import Api, Json, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import EXTERNAL_KUBECONFIG
from tests.testbed.kueue_process import running_kueue
from tests.testbed.pods import PREFIX
from workbench.cluster.process import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not binaries.is_built("kueue") or EXTERNAL_KUBECONFIG in os.environ,
        reason="needs the control plane of the test bed, and Kueue: make test-neighbours",
    ),
]
JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/workloads"
QUEUE = "kueue.x-k8s.io/queue-name"
SHARE = f"{PREFIX}/gpu-percent"
BACKGROUND = {"propagationPolicy": "Background"}  # by default a Job leaves its pods
FOREVER = {f"{PREFIX}/mock-run": "forever"}
RETURN_S = 8
REQUESTS, SENDERS = 50, 8
GREEDY, MODEST = "vision", "speech"
DOCUMENTS = [
    profile("segmentation", configuration(50)),
    profile("large", configuration(60)),
    profile("small", configuration(30)),
]


def manifests() -> list[Json]:
    """Return the YAML documents of docs/queues.md."""
    page = (REPOSITORY / "docs" / "queues.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


MANIFESTS = manifests()


def of_kind(*kinds: str) -> list[Json]:
    return [document for document in MANIFESTS if document["kind"] in kinds]


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, because Kueue's webhooks see all pods and Jobs."""
    with ControlPlane(tmp_path_factory.mktemp("kueue")) as plane:
        yield plane


@pytest.fixture
def queues(esg, cluster, request) -> Iterator[Harness]:
    """The scheduler with two GPUs, its webhook, Kueue and the page's queues.

    A parameter replaces the time after which a pod that is not ready returns to its queue.
    """
    [settings] = of_kind("Configuration")
    if hasattr(request, "param"):
        settings = {**settings, "waitForPodsReady": {"timeout": request.param}}
    harness = esg(
        nodes=2,
        gpus=1,
        documents=DOCUMENTS,
        managed_resources=True,
        environment={"ESG_DELETION_GRACE_MAX_S": "0"},
    )
    webhook_process.start_registered(cluster)
    with running_kueue(cluster, settings):
        for document in of_kind("ResourceFlavor", "ClusterQueue", "LocalQueue"):
            if document["metadata"].get("namespace", "default") == "default":
                cluster.api.apply(document)
        yield harness
        # Kueue has finalizers on its pods, so they are deleted while it runs.
        cluster.api.request("DELETE", JOBS, BACKGROUND)
        for namespace in ("default", GREEDY, MODEST):
            cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods")
        wait_until(lambda: not cluster.api.items("/api/v1/pods"), what="all pods are deleted")
        wait_until(lambda: not cluster.api.items(WORKLOADS), what="Kueue has no workload")


def job(
    name: str, queue: str, pods: int, *, function: str = "segmentation", percent: int = 50
) -> Json:
    """Create the page's Job with another name, queue, number of pods and share."""
    [document] = of_kind("Job")
    document = yaml.safe_load(yaml.safe_dump(document))
    document["metadata"] |= {"name": name, "labels": {QUEUE: queue}}
    document["spec"] |= {"parallelism": pods, "completions": pods}
    template = document["spec"]["template"]
    template["metadata"] = {"labels": {f"{PREFIX}/function": function}, "annotations": FOREVER}
    amounts = {"cpu": "1", SHARE: str(percent)}
    template["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return document


def bound(harness: Harness, name: str) -> list[str]:
    """Return the names of a Job's pods that have a node."""
    pods = harness.api.items(PODS, labelSelector=f"batch.kubernetes.io/job-name={name}")
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]


def used_percent(harness: Harness, queue: str) -> int:
    """Return the percent that a ClusterQueue has given away."""
    [flavor] = harness.api.get(f"{QUEUES}/{queue}")["status"]["flavorsUsage"]
    [usage] = [r["total"] for r in flavor["resources"] if r["name"] == SHARE]
    return int(usage)


def is_suspended(harness: Harness, name: str) -> bool:
    return bool(harness.api.get(f"{JOBS}/{name}")["spec"]["suspend"])


def test_a_job_of_the_page_is_admitted_and_released(queues):
    """Its pods run on the queue's percent, and give it back when they are deleted with the Job.

    A Job whose template requests nothing is not counted: the webhook sees its pods only.
    """
    harness = queues
    harness.api.create(job("one", "vision", 4))
    wait_until(lambda: len(bound(harness, "one")) == 4, what="a queue borrows the other's GPU")
    assert sum(percent for _, percent, _ in harness.wait_agreement().values()) == 200
    wait_until(lambda: used_percent(harness, "vision") == 200, what="Kueue counts the percent")

    harness.api.create(job("two", "vision", 1))
    harness.api.request("DELETE", f"{JOBS}/one", BACKGROUND)
    wait_until(lambda: len(bound(harness, "two")) == 1, what="the next Job is admitted")
    wait_until(lambda: used_percent(harness, "vision") == 50, what="Kueue releases the percent")
    assert sum(percent for _, percent, _ in harness.wait_agreement().values()) == 50

    silent = job("silent", "vision", 1)
    del silent["spec"]["template"]["spec"]["containers"][0]["resources"]
    harness.api.create(silent)
    wait_until(lambda: len(bound(harness, "silent")) == 1, what="a Job without requests runs")
    assert sum(percent for _, percent, _ in harness.wait_agreement().values()) == 100
    assert used_percent(harness, "vision") == 50


def test_a_pod_is_counted_by_the_requests_of_the_webhook(queues):
    """A pod with labels only waits gated, unseen by the extender, until its percent is free."""
    harness = queues
    harness.api.create(job("all", "vision", 4))
    wait_until(lambda: len(bound(harness, "all")) == 4, what="the Job has both GPUs")
    harness.create("pod", function="segmentation", labels={QUEUE: "vision"})
    pod = harness.pod("pod")
    assert pod["spec"]["containers"][0]["resources"]["requests"][SHARE] == "50"
    assert "kueue.x-k8s.io/admission" in [gate["name"] for gate in pod["spec"]["schedulingGates"]]
    assert not harness.node_of("pod")

    harness.api.request("DELETE", f"{JOBS}/all", BACKGROUND)
    harness.wait_bound("pod")
    wait_until(lambda: used_percent(harness, "vision") == 50, what="Kueue counts the pod")
    assert harness.grant_of("pod")["gpu-percent"] == "50"


def test_a_queue_takes_its_percent_back(queues):
    """Kueue preempts what the other queue has borrowed; no GPU is over 100 % in between."""
    harness = queues
    for number in range(4):
        harness.api.create(job(f"borrower-{number}", "vision", 1))
    names = [f"borrower-{number}" for number in range(4)]
    wait_until(lambda: all(bound(harness, n) for n in names), what="vision has both GPUs")

    harness.api.create(job("owner", "speech", 2))
    wait_until(lambda: len(bound(harness, "owner")) == 2, what="speech has its GPU")
    assert len([name for name in names if bound(harness, name)]) == 2
    assert sum(percent for _, percent, _ in harness.wait_agreement().values()) == 200
    wait_until(
        lambda: [used_percent(harness, queue) for queue in ("vision", "speech")] == [100, 100],
        what="Kueue counts the share of each",
    )
    assert harness.metric_count("esg_gpu_overcommitted") == 0


@pytest.mark.parametrize("queues", [f"{RETURN_S}s"], indirect=True)
def test_a_pod_that_no_gpu_holds_returns_to_its_queue(queues):
    """Percent is free by the sum and on no GPU: `waitForPodsReady` lets the next Job have it."""
    harness = queues
    harness.api.create(job("large", "vision", 2, function="large", percent=60))
    wait_until(lambda: len(bound(harness, "large")) == 2, what="each GPU has 60 %")
    harness.api.create(job("too-large", "speech", 1, function="large", percent=60))
    wait_until(lambda: not is_suspended(harness, "too-large"), what="Kueue admits it by the sum")
    wait_until(lambda: is_suspended(harness, "too-large"), what="it returns to its queue")
    harness.api.create(job("small", "speech", 2, function="small", percent=30))
    wait_until(lambda: len(bound(harness, "small")) == 2, what="others have its percent")


def test_a_greedy_namespace_of_the_gateway_leaves_the_others_their_share(queues):
    """It borrows what is idle; when the other has requests, it falls to its share and stays there.

    The greedy FunctionServer wants both GPUs all the time, so it tries to get the pods back.
    """
    harness = queues
    api = harness.api
    for document in documents_in(RBAC):
        api.apply(document)
    for namespace in (GREEDY, MODEST):
        metadata = {"name": namespace}
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for document in documents_in(RBAC):
            if document["metadata"].get("namespace") == "default":  # to create pods there
                document["metadata"]["namespace"] = namespace
                api.apply(document)
    for document in of_kind("LocalQueue"):
        if document["metadata"]["name"] == "default":
            api.apply(document)
    model_port, port = free_port(), free_port()
    ready = f"http://127.0.0.1:{model_port}/v2/models/segmentation/ready"
    url = f"http://127.0.0.1:{port}"
    with (
        running(player(harness.plane, model_port), ready),
        running(gateway(harness.plane, port), f"{url}/v2/health/ready"),
        httpx.Client(base_url=url, trust_env=False, timeout=120) as client,
    ):
        serve(api, GREEDY, model_port, minPods=4)
        wait_until(lambda: len(serving(api, GREEDY)) == 4, what="one namespace has both GPUs")
        serve(api, MODEST, model_port, keepAliveS=3600)
        wait_until(lambda: answers(f"{url}/{MODEST}/v2/models/w/ready"), what="the other is known")
        answer = infer(client, MODEST)
        assert answer.status_code == httpx.codes.OK, answer.text
        assert len(serving(api, GREEDY)) == 3
        api.patch(server_path(MODEST), {"spec": {"minPods": 2}})
        wait_until(lambda: len(serving(api, MODEST)) == 2, what="the other has its share")

        wait_until(lambda: waiting(api, GREEDY), what="the greedy one tries again")
        modest, greedy = flood(client)
        assert set(modest) == {httpx.codes.OK}
        assert httpx.codes.OK in greedy
        assert len(serving(api, GREEDY)) == 2
        assert len(serving(api, MODEST)) == 2
        wait_until(
            lambda: [used_percent(harness, queue) for queue in (GREEDY, MODEST)] == [100, 100],
            what="Kueue counts the share of each",
        )
        assert harness.metric_count("esg_gpu_overcommitted") == 0
        for namespace in (GREEDY, MODEST):
            api.delete(server_path(namespace))
        wait_until(
            lambda: not serving(api, GREEDY) + serving(api, MODEST), what="the pods are deleted"
        )


def serve(api: Api, namespace: str, port: int, **spec: object) -> None:
    """Create a workflow of one stage and its FunctionServer in a namespace."""
    for document in (workflow("w", "segmentation"), server(port, maxPods=8, **spec)):
        document["metadata"]["namespace"] = namespace
        if document["kind"] == "FunctionServer":
            document["spec"]["function"] = "segmentation"
        api.apply(document)


def server_path(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/functionservers/f-server"


def pods_of(api: Api, namespace: str) -> list[Json]:
    """Return the pods of a namespace that nobody has deleted."""
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def serving(api: Api, namespace: str) -> list[Json]:
    return [pod for pod in pods_of(api, namespace) if pod["spec"].get("nodeName")]


def waiting(api: Api, namespace: str) -> list[Json]:
    return [pod for pod in pods_of(api, namespace) if pod["spec"].get("schedulingGates")]


def infer(client: httpx.Client, namespace: str) -> httpx.Response:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
    return client.post(f"/{namespace}/v2/models/w/infer", json={"inputs": [tensor]})


def flood(client: httpx.Client) -> tuple[list[int], list[int]]:
    """Send requests one by one, and many at a time to the greedy namespace meanwhile.

    Returns:
        The statuses of the answers, those of the modest namespace first.
    """
    done = Event()

    def repeat() -> list[int]:
        statuses = []
        while not done.is_set():
            statuses.append(infer(client, GREEDY).status_code)
        return statuses

    with ThreadPoolExecutor(SENDERS) as executor:
        senders = [executor.submit(repeat) for _ in range(SENDERS)]
        try:
            modest = [infer(client, MODEST).status_code for _ in range(REQUESTS)]
        finally:
            done.set()
        return modest, [status for sender in senders for status in sender.result()]
