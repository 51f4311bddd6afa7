"""The agent's series: their values and their end."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scheduler import __version__
from scheduler.agent.gpus.inventory import Inventory
from scheduler.agent.gpus.reading import Process
from scheduler.agent.metrics import (
    SERIES,
    AgentMetrics,
    clients_max,
    gpu_samples,
    granted_samples,
    pod_samples,
)
from scheduler.agent.pods.granted_pod import GrantedPod
from tests.agent.factories import device, reading, settings
from tests.agent.fakes import Clock

PODS = {
    "uid-a": GrantedPod("uid-a", "team", "a", "GPU-0", 30, 4096),
    "uid-b": GrantedPod("uid-b", "team", "b", "GPU-0", 20, 2048),
}


def assessed(*devices, **overrides):
    inventory = Inventory(settings(), clock=Clock())
    inventory.update(reading(*devices, **overrides))
    return inventory.assessed(lambda _: "")


def scraped(samples):
    """Map names and label values to values, as Prometheus parses them."""
    text = generate_latest(AgentMetrics(lambda: samples).registry).decode()
    return {
        (sample.name, *(sample.labels[name] for name in SERIES[sample.name].labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_series_of_a_gpu():
    """Health, memory, load and temperature, by node and UUID; unknown values are absent."""
    healthy = device(
        0,
        memory_used_bytes=5,
        utilization_ratio=0.25,
        temperature_celsius=61,
        reset_due="row remapping",
    )
    values = scraped(gpu_samples("n", assessed(healthy, device(1, mig=True))))
    labels = ("n", "GPU-0")
    assert values == {
        ("esg_agent_info", __version__): 1,
        ("esg_gpu_healthy", *labels): 1,
        ("esg_gpu_memory_bytes", *labels): 81_920 * 2**20,
        ("esg_gpu_memory_used_bytes", *labels): 5,
        ("esg_gpu_utilization_ratio", *labels): 0.25,
        ("esg_gpu_temperature_celsius", *labels): 61,
        ("esg_gpu_reset_due", *labels): 1,
        ("esg_gpu_healthy", "n", "GPU-1"): 0,
        ("esg_gpu_memory_bytes", "n", "GPU-1"): 81_920 * 2**20,
        ("esg_gpu_reset_due", "n", "GPU-1"): 0,
        ("esg_gpu_unhealthy", "n", "GPU-1", "mig"): 1,
    }


def test_lost_gpu_has_no_old_values():
    """Its health is current; its measurements are outdated."""
    inventory = Inventory(settings(), clock=Clock())
    inventory.update(reading(device(0, memory_used_bytes=5)))
    inventory.update(reading(unreadable={0: "GPU is lost"}))
    values = scraped(gpu_samples("n", inventory.assessed(lambda _: "")))
    assert values["esg_gpu_unhealthy", "n", "GPU-0", "lost"] == 1
    assert not any(name == "esg_gpu_memory_used_bytes" for name, *_ in values)


def test_series_of_a_pod_sum_its_processes():
    """Foreign processes do not count; a pod without processes has its limit."""
    processes = (
        Process(1, 100),
        Process(2, 50),
        Process(3, 1000),
        Process(4, None),
    )
    owners = {1: "uid-a", 2: "uid-a", 3: "uid-foreign"}
    values = scraped(pod_samples(assessed(device(0, processes=processes)), PODS, owners.get))
    labels = ("team", "a", "GPU-0")
    assert values == {
        ("esg_agent_info", __version__): 1,
        ("esg_pod_gpu_memory_used_bytes", *labels): 150,
        ("esg_pod_gpu_memory_limit_bytes", *labels): 4096 * 2**20,
        ("esg_pod_gpu_memory_limit_bytes", "team", "b", "GPU-0"): 2048 * 2**20,
    }


def test_pod_on_another_gpu_than_granted():
    """The usage has the GPU that it uses; the limit, the granted one."""
    on_another = assessed(device(1, processes=(Process(1, 7),)))
    values = scraped(pod_samples(on_another, PODS, {1: "uid-b"}.get))
    assert values["esg_pod_gpu_memory_used_bytes", "team", "b", "GPU-1"] == 7
    assert values["esg_pod_gpu_memory_limit_bytes", "team", "b", "GPU-0"] == 2048 * 2**20


def test_series_end_with_their_pod():
    """A deleted pod has no series."""
    gpus = assessed(device(0, processes=(Process(1, 7),)))
    pods = dict(PODS)
    assert any("a" in key for key in scraped(pod_samples(gpus, pods, {1: "uid-a"}.get)))
    del pods["uid-a"]
    assert not any("a" in key for key in scraped(pod_samples(gpus, pods, {1: "uid-a"}.get)))


def test_what_is_granted_has_workflow_and_stage():
    """The labels that an operator asks by; a function alone has no workflow."""
    pods = [
        GrantedPod("uid", "team", "a", "GPU-0", 30, 1024, "pictures", "resize"),
        GrantedPod("uid", "team", "b", "GPU-0", 20, 2048, "", "classify"),
        GrantedPod("uid", "team", "c", "GPU-0", 90, 2048, "", "classify", is_member=True),
    ]
    values = scraped(granted_samples("n", pods))
    first = ("n", "team", "a", "GPU-0", "pictures", "resize")
    assert values["esg_pod_gpu_granted_ratio", *first] == 0.3
    assert values["esg_pod_gpu_granted_bytes", *first] == 2**30
    assert values["esg_pod_gpu_granted_ratio", "n", "team", "b", "GPU-0", "", "classify"] == 0.2
    assert values["esg_pod_gpu_granted_ratio", "n", "team", "c", "GPU-0", "", "classify"] == 0.0


@pytest.mark.parametrize(("version", "limit"), [(None, 48), (13_000, 48), (13_010, 60)])
def test_clients_of_a_server_are_limited_by_the_version_of_cuda(version, limit):
    """NVIDIA raised the limit with CUDA 13.1."""
    assert clients_max(version) == limit


def test_labels_are_escaped():
    """Names with any characters can be parsed again."""
    odd = 'a"b\\c\nd'
    assert ("esg_agent_node_writes_total", odd, "annotation") in scraped(
        [("esg_agent_node_writes_total", (odd, "annotation"), 1)]
    )


def test_every_series_has_a_help_text():
    """The text is a sentence, and the name follows Prometheus' conventions."""
    for name, series in SERIES.items():
        assert name.startswith("esg_")
        assert series.text.endswith(".")
