"""Pods of templates over a cluster in memory: discovery, pools and runtime, in virtual time."""

import asyncio
import json
from contextlib import asynccontextmanager

from scheduler.cluster.errors import ApiError, ApiTimeoutError
from scheduler.cluster.resource import trim_server_pod
from scheduler.dispatch.pods import PodStart, PodState, Share
from scheduler.dispatch.scaling.scaler import PodChanges
from scheduler.dispatch.scaling.start_backoffs import StartBackoff, StartBackoffs
from scheduler.gateway.discovery.function_servers import Discovery
from scheduler.gateway.scaling.loop import ScalingLoop
from scheduler.gateway.scaling.pod_limits import StartLimits
from scheduler.gateway.scaling.pod_pools import PodPools
from scheduler.gateway.scaling.slice_holders import HolderSettings, SliceHolders
from scheduler.gateway.scaling.start_failures import StartFailures
from scheduler.gateway.scaling.template_pods import START_PAUSE_MS
from scheduler.gateway.settings import GatewaySettings
from scheduler.model import names
from scheduler.model.pod_template import template_problem
from scheduler.model.pools import gateway_group
from tests.gateway.ready_pods import MODEL, NAMESPACE
from tests.gateway.runtime_bed import Bed, Model, profile, workflow
from workbench.cluster.api_requests import selected

FUNCTION = (NAMESPACE, "f")
SMALL, LARGE = Share(MODEL, 1, 50, 100), Share(MODEL, 1, 100, 100)
ROOM_S, START_S = 30.0, 300.0
TEMPLATE = {
    "metadata": {"labels": {"app": "f"}, "annotations": {"note": "1"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "priorityClassName": "low"},
}


def live_uids(pods, labels):
    """Return the UIDs of the pods of a label selector that nobody has deleted."""
    matches = selected("", {"labelSelector": labels})
    metadata = [raw["metadata"] for raw in pods if matches(raw)]
    return {item["uid"] for item in metadata if "deletionTimestamp" not in item}


class Pods:
    """The API server's pods, as PodClient and as a watch of each group of gateways.

    Attributes:
        objects: pods by name.
        created: names in order.
        deleted: names in order.
        faults: errors of the next creations; None: it works.
        next_created: set by a creation.
        is_silent: nothing is reported.
        is_cut_off: no question is answered.
        graces_s: grace period of the last deletion, by name; None: that of the pod.
    """

    def __init__(self):
        self.objects, self.created, self.deleted, self.faults = {}, [], [], []
        self.graces_s = {}
        self.is_cut_off = False
        self.is_silent = False
        self.next_created = asyncio.Event()
        self.handlers = {}  # by group

    async def create(self, namespace, pod):
        assert namespace == NAMESPACE
        await asyncio.sleep(0.01)
        fault = self.faults.pop(0) if self.faults else None
        lost = fault if isinstance(fault, LostAnswer) else None
        if fault is not None and lost is None:
            raise fault
        name = pod["metadata"]["name"]
        if name in self.objects:
            raise ApiError(409, "AlreadyExists", f"pods {name} already exists")
        raw = json.loads(json.dumps(pod))
        raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{name}"}
        raw["status"] = {"phase": "Pending"}
        self.objects[name] = raw
        self.created.append(name)
        self.next_created.set()
        self._report(name)
        if lost is not None:
            raise lost.error

    async def delete(self, namespace, name, uid, *, grace_s=None):
        await asyncio.sleep(0.01)
        self.graces_s[name] = grace_s
        raw = self.objects.get(name)
        assert raw is None or uid in {"", raw["metadata"]["uid"]}
        if raw is not None and "deletionTimestamp" not in raw["metadata"]:
            self.deleted.append(name)
            raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._report(name)

    async def live_uids(self, namespace, labels):
        await asyncio.sleep(0.01)
        if self.is_cut_off:
            raise ApiTimeoutError("no answer", sent=True)
        return live_uids(self.objects.values(), labels)

    def remove(self, name):
        """Remove a pod's object, as the kubelet does after its containers have ended."""
        raw = self.objects.pop(name)
        if not self.is_silent and (handler := self.handlers.get(gateway_group(raw))):
            handler.delete(trim_server_pod(raw))

    def bind(self, name, *, model=MODEL, ready=True, gpu="GPU-1"):
        """Place a pod with the grant that its annotation requests."""
        raw = self.objects[name]
        raw["metadata"].setdefault("annotations", {})
        point = json.loads(raw["metadata"]["annotations"]["esg-scheduler.io/configuration"])
        raw["metadata"]["annotations"] |= {
            "esg-scheduler.io/gpu": gpu,
            "esg-scheduler.io/gpu-percent": str(point["gpuPercent"]),
            "esg-scheduler.io/gpu-memory": "0=100M",
            "esg-scheduler.io/batch": str(point["batch"]),
            "esg-scheduler.io/plan": json.dumps(
                {
                    "cpu": point["cpu"],
                    "gpu_model": model,
                    "pool": raw["metadata"]["labels"].get(names.LABEL_POOL, ""),
                }
            ),
        }
        raw["spec"]["nodeName"] = "node-1"
        status = {"type": "Ready", "status": "True" if ready else "False"}
        raw["status"] = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [status]}
        self._report(name)

    def bind_holder(self, name, *, gpu="GPU-1", phase="Running", role=names.POOL_HOLDER):
        """Place a holder on a GPU."""
        raw = self.objects[name]
        amounts = raw["spec"]["containers"][0]["resources"]["requests"]
        percent = amounts["esg-scheduler.io/gpu-percent"]
        plan = {"cpu": int(amounts["cpu"]), "gpu_model": MODEL, "pool": role}
        plan["group"] = gateway_group(raw)
        raw["metadata"].setdefault("annotations", {}).update(
            {
                "esg-scheduler.io/gpu": gpu,
                "esg-scheduler.io/gpu-percent": percent,
                "esg-scheduler.io/gpu-memory": "0=100M",
                "esg-scheduler.io/batch": "1",
                "esg-scheduler.io/plan": json.dumps(plan),
            }
        )
        raw["spec"]["nodeName"] = "node-1"
        raw["status"] = {"phase": phase}
        self._report(name)

    def set_status(self, name, **status):
        """Change the status of a pod."""
        self.objects[name]["status"] |= status
        self._report(name)

    def _report(self, name):
        raw = self.objects[name]
        if not self.is_silent and (handler := self.handlers.get(gateway_group(raw))):
            handler.upsert(trim_server_pod(raw))

    def regroup(self, name, group):
        """Change the group in a pod's labels: it leaves one watch and appears in another."""
        raw = self.objects[name]
        if gateway_group(raw) == group:
            return
        if not self.is_silent and (handler := self.handlers.get(gateway_group(raw))):
            handler.delete(trim_server_pod(raw))
        raw["metadata"]["labels"][names.LABEL_GATEWAY_GROUP] = group
        self._report(name)

    def relist(self):
        """Report all pods by a list."""
        self.is_silent = False
        for group, handler in self.handlers.items():
            of_group = [raw for raw in self.objects.values() if gateway_group(raw) == group]
            handler.replace([trim_server_pod(raw) for raw in of_group])


class LostAnswer:
    """A creation that takes place, and whose answer is lost."""

    def __init__(self, error):
        self.error = error


class FirstBatchModel(Model):
    """The client by which a pod is warmed."""

    def __init__(self, bed, pod):
        super().__init__(pod.function[1])
        self.bed, self.pod = bed, pod

    async def ready(self, model):
        await asyncio.sleep(0.001)
        return self.bed.is_model_ready

    async def infer(self, model, ranges, **options):
        answer = await super().infer(model, ranges, **options)
        self.bed.warmed.append((self.pod.name, sum(part.rows for part in ranges)))
        return answer


class ScriptedScaler:
    """Wants a number of pods of one share, and ends those that are not wanted.

    Attributes:
        failures: Starts that failed.
        found_room: Whether each of them had room.
    """

    def __init__(self, runtime):
        self._runtime = runtime
        self.wanted, self.share, self.pooled = 0, LARGE, False
        self.slices = []  # `SliceStart`
        self.failures, self.found_room = [], []
        self.proved_slices = []
        self._slice_backoff = StartBackoff(*START_PAUSE_MS)
        self.backoffs = StartBackoffs(START_PAUSE_MS)

    async def choose_shares(self, now_ms):
        pass

    def pod_changes(self, now_ms):
        pods = [p for p in self._runtime.dispatcher.pods if p.state is not PodState.DRAINING]
        start = PodStart(FUNCTION, self.share, self.pooled)
        is_paused = self.backoffs.is_paused(start, now_ms)
        starts = [] if is_paused else [start] * (self.wanted - len(pods))
        slices = [s for s in self._runtime.dispatcher.slices if not s.is_closed]
        is_paused = now_ms < self._slice_backoff.retry_ms
        return PodChanges(
            starts,
            pods[self.wanted :],
            slice_starts=[] if is_paused else self.slices[len(slices) :],
            slice_stops=slices[len(self.slices) :],
        )

    def slice_failed(self, start, now_ms):
        self._slice_backoff.failed(now_ms)

    def slice_proved(self, start):
        self.proved_slices.append(start)

    def start_failed(self, start, now_ms, *, found_room=False):
        self.failures.append(start)
        self.found_room.append(found_room)
        self.backoffs.failed(start, now_ms, refused=False)

    def remove_function(self, function):
        pass


class PoolBed(Bed):
    """A gateway with one server with a template, over a cluster in memory.

    Args:
        group: group of the gateway and of the server. Default: none.
    """

    def __init__(self, pods, uid="server-uid", latency_ms=1.0, group="", **spec):
        super().__init__()
        self.pods = pods
        self.events = []
        self.warmed = []
        failures = StartFailures(self._record)
        self.scaler = ScriptedScaler(self.runtime)
        self.slice_holders = SliceHolders(
            self.runtime,
            pods,
            self.scaler,
            fence=self.fence,
            settings=HolderSettings(
                "none",
                room_ms=1000 * ROOM_S,
                selector=GatewaySettings(group=group).group_selector,
            ),
            record_event=self._record,
        )
        self.pools = PodPools(
            self.runtime,
            pods,
            self.scaler,
            failures,
            self.slice_holders,
            connect=self._connect_first,
            on_server=lambda server, profile: self.slice_holders.set_server(
                server, profile, is_pooled=server.spec.share == "pooled"
            ),
            limits=StartLimits(1000 * ROOM_S, 1000 * START_S),
            scheduler_name="esg-scheduler",
        )
        self.profile = profile("f", latency_ms)
        self.discovery = Discovery(self.pools, lambda _: self.profile, self.pools)
        pods.handlers[group] = self.discovery.pods
        self.scaling = ScalingLoop(
            self.runtime,
            self.pools,
            self.slice_holders,
            self.scaler,
            is_synced=lambda: self.is_synced,
        )
        self.uid, self.group, self.spec = uid, group, spec
        self.is_model_ready = self.is_synced = True

    def _record(self, reference, *, type, reason, message):  # noqa: A002 - Kubernetes' name for it
        self.events.append((reference.kind, reference.name, type, reason, message))

    def _connect_first(self, pod):
        return FirstBatchModel(self, pod)

    def set_documents(self):
        """Add workflow w of function f and its server."""
        self.runtime.set_profile(self.profile)
        self.runtime.set_workflow(workflow("w", {"f": ()}))
        self.set_server()

    def set_server(self, **changed):
        """Add the server, or change fields of its specification; None removes one."""
        self.spec |= changed
        whole = {
            "function": "f", "template": TEMPLATE, "protocol": "http-binary", "port": 8000,
            **self.spec,
        }  # fmt: skip
        spec = {field: value for field, value in whole.items() if value is not None}
        assert template_problem(spec.get("template", TEMPLATE)) is None
        labels = {names.LABEL_GATEWAY_GROUP: self.group} if self.group else {}
        metadata = {"name": "s", "namespace": NAMESPACE, "uid": self.uid, "labels": labels}
        self.discovery.servers.upsert({"metadata": metadata, "spec": spec})
        assert self.discovery.problems == {}
        assert not self.discovery.servers.problems

    async def first_pod(self, **options):
        """Let the scaler want one pod, and place it; return its name."""
        self.scaler.wanted = 1
        await asyncio.sleep(1)
        [name] = self.pods.created
        self.pods.bind(name, **options)
        return name

    def states(self):
        """Return the states of the dispatcher's pods, sorted."""
        return sorted(pod.state.value for pod in self.runtime.dispatcher.pods)


@asynccontextmanager
async def gateway(pods=None, bed_class=PoolBed, **options):
    """A running gateway over pods that may outlive it."""
    bed = bed_class(pods or Pods(), **options)
    bed.set_documents()
    bed.pods.relist()
    tasks = [asyncio.create_task(work) for work in (bed.scaling.run(), bed.slice_holders.follow())]
    try:
        yield bed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await bed.pools.close()
        await bed.slice_holders.close()
        await bed.runtime.close()
