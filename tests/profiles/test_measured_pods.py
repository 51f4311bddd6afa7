"""Pods that are measured, with an API server that refuses, or does not answer."""

import asyncio

import pytest

from scheduler.cluster.errors import ApiError, NoAnswerError
from scheduler.model.function_server import FunctionServer
from scheduler.model.plan import Prices
from tests.virtual_loop import virtually
from workbench.profiles import measured_pod as module
from workbench.profiles.batch_times import Precision, measure_batch
from workbench.profiles.cluster_measurement import ClusterGrid
from workbench.profiles.measured_pod import MeasuredPodError, PodShare, measured_pod
from workbench.profiles.server_measurement import TIMEOUT_MS

FORBIDDEN = ApiError(403, "Forbidden", "cannot touch pods")
SILENT = NoAnswerError("no route", sent=False)
SERVER = FunctionServer.model_validate(
    {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "FunctionServer",
        "metadata": {"name": "f", "namespace": "default"},
        "spec": {
            "function": "f", "model": "m", "protocol": "grpc", "port": 8001,
            "template": {"spec": {"containers": [{"name": "server", "image": "none"}]}},
        },
    }
)  # fmt: skip


class PlayedApi:
    """Answers of an API server; an exception is raised."""

    def __init__(self, created, pod):
        self.created, self.pod = created, pod

    async def post(self, path, body):
        if self.created is not None:
            raise self.created

    async def get(self, path):
        return self.pod

    async def delete(self, path, options):
        raise FORBIDDEN


async def start(api, reports):
    share = PodShare(batch=1, cpu=1, gpu_percent=50, memory_mib=900)
    times = {"start_s": 0.05, "life_s": 60.0}
    async with measured_pod(api, SERVER, share, scheduler_name="", report=reports.append, **times):
        pass


@pytest.mark.parametrize(
    ("created", "pod", "text"),
    [
        (SILENT, {}, "has no address after 0.05 s"),
        (None, {"status": {"phase": "Failed", "message": "no image"}}, "has ended: no image"),
    ],
    ids=["no answer", "a pod that ended"],
)
async def test_a_pod_that_cannot_be_deleted(created, pod, text, monkeypatch):
    """The error is that of its start, and a line says that the pod may remain."""
    monkeypatch.setattr(module, "_DELETION_S", 0.05)
    reports = []
    with pytest.raises(MeasuredPodError, match=text):
        await start(PlayedApi(created, pod), reports)
    [report] = reports
    assert "is not deleted after 0.05 s; delete it, or it ends by itself in 60 s" in report


async def test_a_pod_that_may_not_be_created():
    """The refusal is the error, and there is nothing to delete."""
    reports = []
    with pytest.raises(MeasuredPodError, match=r"refused pod f-\S+: cannot touch"):
        await start(PlayedApi(FORBIDDEN, {}), reports)
    assert not reports


@virtually
async def test_a_pod_outlives_the_slowest_batches_that_are_measured():
    """Small shares of a GPU take up to the time-out of a batch for each run."""
    precision = Precision(warm_up_runs=4, limit_s=70.0)
    grid = ClusterGrid(
        server=SERVER,
        gpu_percents=(10,),
        cpus=(1,),
        batches=(1, 2),
        memory_mib=900,
        inputs={},
        precision=precision,
        prices=Prices(),
    )
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    for _ in grid.batches:
        await asyncio.sleep(TIMEOUT_MS / 1000)  # the run before those that are counted
        await measure_batch(lambda: asyncio.sleep(TIMEOUT_MS / 1000), precision, clock=loop.time)
    assert loop.time() - begin_s <= grid.life_s(len(grid.batches)) - grid.start_s
