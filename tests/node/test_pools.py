"""Pools under a load on a real node, while slices, their gateway and their agent end.

Each request is answered, or reported as lost. Five processes of 60 % of a GPU are in slices, in
each of which one of them runs at a time; their model servers are played, and record what runs.
"""

import asyncio
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scheduler.gateway.replicas.shards import shard_of
from scheduler.model.names import (
    ANNOTATION_GPU,
    LABEL_FUNCTION,
    LABEL_POOL,
    POOL_HOLDER,
    POOL_MEMBER,
)
from tests.e2e.pod_recorder import recorded_pods
from tests.node import recorded_server
from tests.node.functions import PODS, START_TIMEOUT_S, container, profile, workflow
from tests.node.mlserver import SERVICE
from tests.node.real_cluster import MOCKS, NAME, RealCluster, is_ready
from tests.node.recorded_server import peak_percents
from tests.node.release import NAMESPACE, VALUES, Release
from tests.node.test_healing import kill
from tests.testbed.api import Json, wait_until
from tests.testbed.numbered_load import NumberedLoad, until_answered
from tests.testbed.observations import Observation, peak_use
from workbench.cluster import model_server

pytestmark = pytest.mark.e2e

LEASE = (
    f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/"
    f"esg-gateway-shard-{shard_of('default')}"
)
PORT = 8000
CLIENTS = 4
TRY_AGAIN = 503  # on a busy machine, where the gateway's Leases are not kept
PERCENT = 60
MEMBERS = 5
FOLDER = f"{MOCKS}/played"
PROGRAM = f"{FOLDER}/{Path(recorded_server.__file__).name}"
RECORDS = f"{FOLDER}/records"
GATEWAY = {
    **VALUES["gateway"],
    "replicas": 2,
    "settings": {"share": "pooled", "cpus_per_gpu": 1},  # one process runs in a slice
}
URGENT: Json = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}
DOCUMENTS = [
    URGENT,
    profile("f", cold_start_ms=2_000, latencies_ms={1: 90, 4: 120}, percent=PERCENT),
    profile("rival", cold_start_ms=100, latencies_ms={1: 100}, percent=100),
    workflow("w", "f", slo_ms=60_000),
]


def played(*arguments: str, **fields: object) -> Json:
    """Create the spec of a pod with a played model server."""
    program = {
        "command": ["python", PROGRAM, RECORDS, *arguments],
        "volumeMounts": [{"name": "played", "mountPath": FOLDER}],
        **fields,
    }
    return {
        "containers": [container() | program],
        "volumes": [{"name": "played", "hostPath": {"path": FOLDER, "type": "Directory"}}],
    }


SERVER: Json = {
    "apiVersion": "esg-scheduler.io/v1alpha1",
    "kind": "FunctionServer",
    "metadata": {"name": "f", "namespace": "default"},
    "spec": {
        "function": "f",
        "protocol": "http-binary",
        "port": PORT,
        "minPods": MEMBERS,
        "maxPods": MEMBERS,
        "template": {
            "spec": played(
                f"--port={PORT}",
                "--run-ms=80",
                "--row-ms=10",
                ports=[{"containerPort": PORT}],
                readinessProbe={
                    "httpGet": {"path": "/v2/models/f/ready", "port": PORT},
                    "periodSeconds": 1,
                    "timeoutSeconds": 5,
                },
            )
        },
    },
}
RIVAL: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "rival", "namespace": "default", "labels": {LABEL_FUNCTION: "rival"},
    },
    "spec": {**played(), "priorityClassName": URGENT["metadata"]["name"]},
}  # fmt: skip
"""A pod that uses a whole GPU from its start to its end."""


@dataclass
class Service:
    """The gateway's Service, and what became of the requests there."""

    url: str
    outcomes: list[int | None] = field(default_factory=list)


class Pool:
    """A pool of the installed chart.

    Args:
        release: the chart, whose gateway has two replicas.

    Attributes:
        report: adds a line to the end of the run's output.
    """

    report: Callable[[str], None]

    def __init__(self, release: Release) -> None:
        self.release = release
        self.api = release.api
        self.cluster = release.cluster
        [port] = self.api.get(SERVICE)["spec"]["ports"]
        self._url = f"http://{self.cluster.node.address}:{port['nodePort']}"

    def under_load(
        self,
        steps: Callable[[Callable[[], None]], None],
        *,
        losses: Collection[int | None] = (TRY_AGAIN,),
    ) -> None:
        """Run steps while clients send requests, and check what became of these and of the GPUs.

        Args:
            steps: they get a function that waits until requests are answered.
            losses: statuses of requests that are reported as lost; None: a failed connection.
        """
        service = Service(self._url)
        load = NumberedLoad([service], clients=CLIENTS)
        with recorded_pods(self.cluster.plane) as seen:
            asyncio.run(load.run(lambda: steps(lambda: until_answered([service]))))
        answers = load.outcomes.count(200)
        self.report(f"{load.sent} requests, {answers} answers, {load.sent - answers} losses")
        assert len(load.outcomes) == load.sent
        assert set(load.outcomes) <= {200, *losses}, load.errors
        assert load.wrong == []
        self._check_gpus(seen)

    def _check_gpus(self, seen: list[Observation]) -> None:
        members = [pod for pod in seen if pod.labels.get("pool") == POOL_MEMBER]
        assert max(use.percent for use in peak_use(members).values()) > 100
        others = [pod for pod in seen if pod not in members]
        assert max(use.percent for use in peak_use(others).values()) <= 100
        records = self.cluster.node.files / RECORDS.lstrip("/")
        assert max(peak_percents(records).values()) <= 100

    def holders(self) -> set[str]:
        """Return the names of the holders that run."""
        return {pod_name(pod) for pod in self._pods(POOL_HOLDER) if is_ready(pod)}

    def members(self) -> set[str]:
        """Return the names of the members that are ready."""
        return {pod_name(pod) for pod in self._pods(POOL_MEMBER) if is_ready(pod)}

    def _pods(self, role: str) -> list[Json]:
        return self.api.items(PODS, labelSelector=f"{LABEL_POOL}={role}")

    def until_whole(self) -> None:
        """Wait until a slice has all processes."""
        wait_until(
            lambda: self.holders() and len(self.members()) == MEMBERS,
            what="the pool is whole",
            timeout_s=START_TIMEOUT_S,
        )

    def gpu(self, holder: str) -> str:
        """Return the GPU of a holder's slice."""
        gpu: str = self.api.get(f"{PODS}/{holder}")["metadata"]["annotations"][ANNOTATION_GPU]
        return gpu

    def owner(self) -> str:
        """Return the replica that dispatches to the pool; empty without one."""
        return self.api.get(LEASE)["spec"].get("holderIdentity") or ""


@pytest.fixture(scope="module")
def _pool(cluster: RealCluster) -> Iterator[Pool]:
    """The pool of one function; it and the second replica of the gateway end with the module."""
    release = Release(cluster)
    release.ensure_installed()
    folder = cluster.node.files / FOLDER.lstrip("/")
    (folder / "workbench" / "cluster").mkdir(parents=True)
    shutil.copy(recorded_server.__file__, folder)
    shutil.copy(model_server.__file__, folder / "workbench" / "cluster")
    records = folder / Path(RECORDS).name
    records.touch()
    records.chmod(0o666)
    replace_gateway(release, GATEWAY)
    for document in [*DOCUMENTS, SERVER]:
        release.api.apply(document)
    yield Pool(release)
    for document in [RIVAL, SERVER, *DOCUMENTS]:
        release.api.delete(release.api.path(document))
    release.api.delete(PODS, grace_s=0)  # holders take their 30 s otherwise
    wait_until(
        lambda: not release.api.items(PODS), what="its pods are deleted", timeout_s=START_TIMEOUT_S
    )
    replace_gateway(release, VALUES["gateway"])
    shutil.rmtree(folder)


@pytest.fixture
def pool(_pool: Pool, request: pytest.FixtureRequest, summarize: Callable[[str], None]) -> Pool:
    """The pool with all processes."""
    _pool.report = lambda line: summarize(f"{request.node.name}: {line}")
    _pool.until_whole()
    return _pool


def replace_gateway(release: Release, gateway: Json) -> None:
    """Upgrade the chart; return when the replicas of its gateway are replaced."""
    before = {pod_name(pod) for pod in release.pods("gateway")}
    release.install("upgrade", gateway=gateway)

    def is_replaced() -> bool:
        pods = release.pods("gateway")
        ready = sum(map(is_ready, pods)) == len(pods) == gateway.get("replicas", 1)
        return ready and not before & {pod_name(pod) for pod in pods}

    wait_until(is_replaced, what="the gateway is replaced", timeout_s=START_TIMEOUT_S)


def pod_name(pod: Json) -> str:
    """Return the name of a pod."""
    name: str = pod["metadata"]["name"]
    return name


def test_a_holder_is_deleted_by_force(pool: Pool) -> None:
    """Another one has its slice on another GPU."""

    def steps(answered: Callable[[], None]) -> None:
        answered()
        holders = pool.holders()
        for name in holders:
            pool.api.delete(f"{PODS}/{name}", grace_s=0)
        wait_until(lambda: pool.holders() - holders, what="another holder runs")
        answered()

    pool.under_load(steps)


def test_a_holder_is_preempted(pool: Pool) -> None:
    """A pod of higher priority gets the GPU when nothing runs in the slice any more."""
    gpus = pool.cluster.gpus

    def steps(answered: Callable[[], None]) -> None:
        answered()
        holder, *_ = pool.holders()
        gpu = pool.gpu(holder)
        others = [index for index, uuid in enumerate(gpus.uuids) if uuid != gpu]
        for index in others:
            gpus.set(index, rows_failed=1)
        wait_until(
            lambda: [known.uuid for known in pool.release.gpus() if known.healthy] == [gpu],
            what="no other GPU is healthy",
        )
        pool.api.create(RIVAL)
        path = pool.api.path(RIVAL)
        wait_until(
            lambda: is_ready(pool.api.get(path)), what="rival runs", timeout_s=START_TIMEOUT_S
        )
        assert holder not in pool.holders()
        for index in others:
            gpus.set(index, rows_failed=0)
        pool.api.delete(path)
        answered()

    try:
        pool.under_load(steps)
    finally:
        for index in range(len(gpus.uuids)):
            gpus.set(index, rows_failed=0)


def test_the_agent_is_restarted(pool: Pool) -> None:
    """Slices and processes stay: first its container is killed, then its pod is deleted."""

    def steps(answered: Callable[[], None]) -> None:
        answered()
        before = pool.holders() | pool.members()
        [agent] = pool.release.pods("agent")
        name = pod_name(agent)
        kill(pool.release, agent, "agent")
        answered()
        pool.api.delete(pool.api.path(agent))
        wait_until(
            lambda: (
                [is_ready(pod) for pod in pool.release.pods("agent") if pod_name(pod) != name]
                == [True]
            ),
            what="another agent runs",
            timeout_s=START_TIMEOUT_S,
        )
        pool.release.until_offers(800)
        answered()
        assert before <= pool.holders() | pool.members()

    pool.under_load(steps)


def is_ready_again(pool: Pool, pod: Json) -> bool:
    """Return true if the gateway's container has started again and is ready."""
    pods = [
        current for current in pool.release.pods("gateway") if pod_name(current) == pod_name(pod)
    ]
    return any(is_ready(current) and restarts(current) > restarts(pod) for current in pods)


def restarts(pod: Json) -> int:
    """Return how often the gateway's container has started again."""
    [status] = pod["status"]["containerStatuses"]
    count: int = status["restartCount"]
    return count


def test_the_gateway_that_owns_the_pool_is_killed(pool: Pool) -> None:
    """Its requests are lost, and known to be; the next owner has its slices and pods.

    That is the other replica, or the container that starts again in the same pod, which has the
    name of the owner.
    """

    def steps(answered: Callable[[], None]) -> None:
        answered()
        holders, members = pool.holders(), pool.members()
        killed = pool.owner()
        [pod] = [pod for pod in pool.release.pods("gateway") if pod_name(pod) == killed]
        pool.cluster.kill(pod, "gateway")
        wait_until(lambda: is_ready_again(pool, pod), what="the killed replica is ready again")
        wait_until(pool.owner, what="there is an owner")
        answered()
        assert members <= pool.members()
        assert holders & pool.holders()  # one without members may end, as the load wants

    pool.under_load(steps, losses=(TRY_AGAIN, None))


def test_the_node_is_drained(pool: Pool) -> None:
    """Its pool is evicted, and comes back with the node."""

    def steps(answered: Callable[[], None]) -> None:
        answered()
        before = pool.holders() | pool.members()
        kubectl = pool.cluster.kind.kubectl
        try:
            kubectl(
                "drain", NAME, f"--pod-selector={LABEL_POOL}", "--ignore-daemonsets",
                "--delete-emptydir-data", f"--timeout={START_TIMEOUT_S}s",
            )  # fmt: skip
        finally:
            kubectl("uncordon", NAME)
        answered()
        assert not before & (pool.holders() | pool.members())

    pool.under_load(steps)
