"""A gateway over a cluster in virtual time: all but the cluster is what its process assembles.

Nothing depends on how fast the machine is, so a trace can be compared with the simulator's.
"""

import asyncio
import json
from collections import defaultdict
from types import SimpleNamespace

import numpy as np

from scheduler.cluster.resource import trim_server_pod
from scheduler.dispatch.pods import Share
from scheduler.gateway.discovery.function_servers import Discovery
from scheduler.gateway.discovery.gpu_nodes import GpuNodes
from scheduler.gateway.scaling.pool_pod import warm_up_row
from scheduler.gateway.scaling.slice_fence import SliceFence
from scheduler.gateway.scaling.template_pods import TemplatePods
from scheduler.gateway.serving.runtime import Runtime
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.names import LABEL_FUNCTION, LABEL_POOL, POOL_HOLDER
from scheduler.search.rules import Rules
from scheduler.settings import Settings
from tests.extender.factories import node
from tests.gateway.pool_bed import TEMPLATE, live_uids
from tests.gateway.ready_pods import NAMESPACE
from tests.gateway.runtime_bed import Records
from tests.gateway.timed_server import TimedServer, one_row_call
from workbench.simulation.rng import Noise

BIND_S = 0.05  # from a pod's creation to its Binding
RUN_S = 0.05  # from there to the start of its container
END_S = 0.5  # from its deletion to its end
SHARE_S = 6.0  # for which the share of a holder stays reserved after its deletion
RETRY_S = 0.5  # of a pod that has no room
GPU_MIB = 81_920  # as `tests.extender.factories.gpu`


class Gpus:
    """GPUs of one node each, and what pods have of them.

    Args:
        count: number of GPUs.
        cpus: vCPUs of each node.
        memory_mib: memory of each GPU for processes.
    """

    def __init__(self, count, cpus, memory_mib):
        self._cpus = cpus
        self._free_mib = dict.fromkeys((f"GPU-n{n}-0" for n in range(count)), memory_mib)
        self._members = defaultdict(set)  # UIDs, by GPU and function
        self._holders = {}  # percent and vCPUs of a holder, by GPU; None: it was deleted

    def place_holder(self, share):
        """Return the GPU for a holder; None without room."""
        gpu = next((gpu for gpu in self._free_mib if gpu not in self._holders), None)
        if gpu is not None:
            self._holders[gpu] = share
        return gpu

    def close(self, gpu):
        """Take no more members in a slice."""
        self._holders[gpu] = None

    def free(self, gpu):
        """Free the share of a holder."""
        self._holders.pop(gpu, None)

    def place_member(self, uid, function, share):
        """Return the GPU for a member; None without room."""
        gpus = [
            gpu
            for gpu, slice_ in self._holders.items()
            if slice_ is not None
            and slice_[0] >= share.gpu_percent
            and slice_[1] >= share.cpu
            and self._free_mib[gpu] >= share.memory_mib
        ]
        gpu = min(
            gpus, key=lambda g: (len(self._members[g, function]), -self._free_mib[g]), default=None
        )
        if gpu is not None:
            self._free_mib[gpu] -= share.memory_mib
            self._members[gpu, function].add(uid)
        return gpu

    def remove_member(self, uid, gpu, function, share):
        """Free the memory of a member."""
        self._free_mib[gpu] += share.memory_mib
        self._members[gpu, function].discard(uid)


class Cluster:
    """API server, scheduler and kubelet, as PodClient and as a watch.

    Attributes:
        created: shares of the pods that were created, by their role in the pool.
    """

    def __init__(self, catalogue, gpus):
        self.created = defaultdict(list)
        self.handler = None
        self._catalogue, self._gpus = catalogue, gpus
        self._objects = {}
        self._tasks = set()

    async def create(self, namespace, pod):
        await asyncio.sleep(0.01)
        raw = json.loads(json.dumps(pod))
        name = raw["metadata"]["name"]
        raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{name}"}
        raw["status"] = {"phase": "Pending"}
        self._objects[name] = raw
        self.created[raw["metadata"]["labels"][LABEL_POOL]].append(self._share(raw))
        self._report(name)
        self._spawn(self._start(name))

    async def delete(self, namespace, name, uid, *, grace_s=None):
        await asyncio.sleep(0.01)
        raw = self._objects.get(name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            return
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._report(name)
        self._spawn(self._end(name))

    async def live_uids(self, namespace, labels):
        await asyncio.sleep(0.01)
        return live_uids(self._objects.values(), labels)

    async def close(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work):
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _report(self, name):
        self.handler.upsert(trim_server_pod(self._objects[name]))

    async def _start(self, name):
        await asyncio.sleep(BIND_S)
        raw = self._objects[name]
        is_holder = raw["metadata"]["labels"].get(LABEL_POOL) == POOL_HOLDER
        share = self._share(raw)
        while (gpu := self._place(raw, share)) is None:
            condition = {"type": "PodScheduled", "status": "False", "message": "no room"}
            raw["status"]["conditions"] = [condition]
            self._report(name)
            await asyncio.sleep(RETRY_S)
            if "deletionTimestamp" in raw["metadata"] or name not in self._objects:
                return
        role = raw["metadata"]["labels"].get(LABEL_POOL, "")
        plan = {"cpu": share.cpu, "gpu_model": share.gpu_model, "pool": role}
        raw["metadata"].setdefault("annotations", {}).update(
            {
                "esg-scheduler.io/gpu": gpu,
                "esg-scheduler.io/gpu-percent": str(share.gpu_percent),
                "esg-scheduler.io/gpu-memory": f"0={share.memory_mib}M",
                "esg-scheduler.io/batch": "1",
                "esg-scheduler.io/plan": json.dumps(plan),
            }
        )
        raw["spec"]["nodeName"] = gpu.split("-")[1]
        raw["status"] = {"phase": "Pending"}
        self._report(name)
        await asyncio.sleep(RUN_S)
        if not is_holder:
            profile = self._catalogue.profile(raw["metadata"]["labels"][LABEL_FUNCTION])
            first_ms = warm_up_row(profile, share).latency_ms
            await asyncio.sleep(max(profile.spec.cold_start_ms - first_ms, 0.0) / 1000)
        ready = {"type": "Ready", "status": "True"}
        raw["status"] = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [ready]}
        if name in self._objects:
            self._report(name)

    def _place(self, raw, share):
        labels = raw["metadata"]["labels"]
        if labels.get(LABEL_POOL) == POOL_HOLDER:
            return self._gpus.place_holder((share.gpu_percent, share.cpu))
        return self._gpus.place_member(raw["metadata"]["uid"], labels[LABEL_FUNCTION], share)

    def _share(self, raw):
        labels, annotations = raw["metadata"]["labels"], raw["metadata"].get("annotations") or {}
        if labels.get(LABEL_POOL) == POOL_HOLDER:
            amounts = raw["spec"]["containers"][0]["resources"]["requests"]
            return Share(
                annotations["esg-scheduler.io/gpu-model"],
                int(amounts["cpu"]),
                int(amounts["esg-scheduler.io/gpu-percent"]),
                0,
            )
        point = json.loads(annotations["esg-scheduler.io/configuration"])
        wanted = point["batch"], point["cpu"], point["gpuPercent"]
        profile = self._catalogue.profile(labels[LABEL_FUNCTION])
        [(model, row)] = [
            (gpu.model, row)
            for gpu in profile.spec.gpus
            for row in gpu.configurations
            if (row.batch, row.cpu, row.gpu_percent) == wanted
        ]
        return Share(model, row.cpu, row.gpu_percent, row.memory_mib)

    async def _end(self, name):
        raw = self._objects[name]
        metadata = raw["metadata"]
        gpu = (metadata.get("annotations") or {}).get("esg-scheduler.io/gpu")
        if gpu is not None and metadata["labels"].get(LABEL_POOL) == POOL_HOLDER:
            self._gpus.close(gpu)
        await asyncio.sleep(END_S)
        del self._objects[name]
        self.handler.delete(trim_server_pod(raw))
        if gpu is None:
            return
        if metadata["labels"].get(LABEL_POOL) == POOL_HOLDER:
            await asyncio.sleep(SHARE_S)
            self._gpus.free(gpu)
        else:
            function = metadata["labels"][LABEL_FUNCTION]
            self._gpus.remove_member(metadata["uid"], gpu, function, self._share(raw))


class VirtualGateway:
    """A gateway that serves a trace in virtual time."""

    def __init__(self, catalogue, scenario, *, seed):
        settings = Settings()
        self._catalogue = catalogue
        self._noises, self._noise_ratio = np.random.SeedSequence(seed), scenario.noise_ratio
        nodes, cpus = scenario.nodes, scenario.cpus
        gpus = Gpus(nodes, cpus, GPU_MIB - settings.server_context_mib)
        self.cluster = Cluster(catalogue, gpus)
        self.fence = SliceFence(self._connect, asyncio.get_running_loop().time)
        self.runtime = Runtime(Rules(), Records(), self.fence.connect, rows_max=10_000)
        self.template_pods = TemplatePods(
            self.runtime,
            settings=settings,
            gateway=GatewaySettings(pods=True, share="pooled", holder_image="none"),
            slice_fence=self.fence,
            connect=self._connect,
            link=SimpleNamespace(pods=self.cluster, events=self, synced=lambda: True),
        )
        GpuNodes(self.template_pods.set_per_gpu).replace(
            [node(f"n{number}", 1, cpu=str(cpus)) for number in range(nodes)]
        )
        pools = self.template_pods.pools
        discovery = Discovery(pools, catalogue.profile, pools)
        self.cluster.handler = discovery.pods
        for profile in catalogue.profiles.values():
            self.runtime.set_profile(profile)
        for workflow in catalogue.workflows.values():
            self.runtime.set_workflow(workflow)
        for name in catalogue.profiles:
            discovery.servers.upsert(_server(name))

    def record(self, reference, *, type, reason, message):  # noqa: A002 - the interface's
        raise AssertionError(message)  # each pod starts

    def _connect(self, pod):
        noise = Noise(np.random.default_rng(self._noises.spawn(1)[0]), self._noise_ratio)
        times_ms = sorted(
            (row.batch, row.latency_ms)
            for gpu in self._catalogue.profile(pod.function[1]).spec.gpus
            for row in gpu.configurations
            if (row.cpu, row.gpu_percent) == (pod.share.cpu, pod.share.gpu_percent)
        )

        def run_ms(rows):
            latency_ms = next(ms for batch, ms in times_ms if batch >= rows)
            return latency_ms * noise.take_factor()

        return TimedServer(run_ms)

    async def serve(self, times_ms, workflows):
        """Serve a trace from the first step of the scaler on; return the latencies in ms."""
        loop = asyncio.get_running_loop()
        scaling = asyncio.create_task(self.template_pods.run())
        await asyncio.sleep(0.0)
        begin_s = loop.time()
        answers = []
        for time_ms, key in zip(times_ms, workflows, strict=True):
            await asyncio.sleep(begin_s + time_ms / 1000 - loop.time())
            answers.append(asyncio.create_task(self._call(key)))
        latencies_ms = await asyncio.gather(*answers)
        scaling.cancel()
        await asyncio.gather(scaling, return_exceptions=True)
        await self.cluster.close()
        await self.runtime.close()
        return latencies_ms

    async def _call(self, key):
        begin_ms = self.runtime.now_ms()
        await self.runtime.submit(one_row_call(key, begin_ms))
        return self.runtime.now_ms() - begin_ms


def _server(function):
    spec = {
        "function": function,
        "template": TEMPLATE,
        "protocol": "http-binary",
        "port": 8000,
        "maxPods": 1_000,
    }
    return {"metadata": {"name": function, "namespace": NAMESPACE, "uid": function}, "spec": spec}
