"""The agent's series: what they say, and that they end with what they are about."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scheduler import __version__
from scheduler.agent.inventory import Inventory
from scheduler.agent.metrics import SERIES, AgentMetrics, gpu_samples, pod_samples
from scheduler.agent.pods import GrantedPod
from scheduler.agent.reading import Process
from tests.agent.readings import Clock, device, reading, settings

PODS = {
    "uid-a": GrantedPod("team", "a", "GPU-0", 4096),
    "uid-b": GrantedPod("team", "b", "GPU-0", 2048),
}


def judged(*devices, **differing):
    inventory = Inventory(settings(), clock=Clock())
    inventory.take(reading(*devices, **differing))
    return inventory.judged(lambda _: "")


def scraped(samples) -> dict[tuple[str, ...], float]:
    """Name and labels' values to value, as a Prometheus server reads them."""
    text = generate_latest(AgentMetrics(lambda: samples).registry).decode()
    return {
        (sample.name, *(sample.labels[name] for name in SERIES[sample.name].labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_gpus_series():
    """Health, memory, load and temperature, by node and UUID; nothing where NVML tells nothing."""
    healthy = device(0, memory_used_bytes=5, utilization_ratio=0.25, temperature_celsius=61)
    told = scraped(gpu_samples("n", judged(healthy, device(1, mig=True))))
    at = ("n", "GPU-0")
    assert told == {
        ("esg_agent_info", __version__): 1,
        ("esg_gpu_healthy", *at): 1,
        ("esg_gpu_memory_bytes", *at): 81_920 * 2**20,
        ("esg_gpu_memory_used_bytes", *at): 5,
        ("esg_gpu_utilization_ratio", *at): 0.25,
        ("esg_gpu_temperature_celsius", *at): 61,
        ("esg_gpu_healthy", "n", "GPU-1"): 0,
        ("esg_gpu_memory_bytes", "n", "GPU-1"): 81_920 * 2**20,
        ("esg_gpu_unhealthy", "n", "GPU-1", "mig"): 1,
    }


def test_a_lost_gpus_old_numbers_are_not_told():
    """Its health is; what was measured is of before."""
    inventory = Inventory(settings(), clock=Clock())
    inventory.take(reading(device(0, memory_used_bytes=5)))
    inventory.take(reading(unreadable={0: "GPU is lost"}))
    told = scraped(gpu_samples("n", inventory.judged(lambda _: "")))
    assert told["esg_gpu_unhealthy", "n", "GPU-0", "lost"] == 1
    assert not any(name == "esg_gpu_memory_used_bytes" for name, *_ in told)


def test_a_pods_series_add_up_its_processes():
    """Processes of other pods and of the machine are nobody's; a pod without any has its limit."""
    processes = (
        Process(1, 100, 0.2),
        Process(2, 50, None),
        Process(3, 1000, 0.5),
        Process(4, None, None),
    )
    owners = {1: "uid-a", 2: "uid-a", 3: "uid-foreign"}
    told = scraped(pod_samples(judged(device(0, processes=processes)), PODS, owners.get))
    at = ("team", "a", "GPU-0")
    assert told == {
        ("esg_agent_info", __version__): 1,
        ("esg_pod_gpu_memory_used_bytes", *at): 150,
        ("esg_pod_gpu_utilization_ratio", *at): 0.2,
        ("esg_pod_gpu_memory_limit_bytes", *at): 4096 * 2**20,
        ("esg_pod_gpu_memory_limit_bytes", "team", "b", "GPU-0"): 2048 * 2**20,
    }


def test_a_pod_on_a_gpu_that_it_was_not_granted_is_seen_there():
    """The series is of the GPU that it uses; the limit, of the one that it should."""
    on_another = judged(device(1, processes=(Process(1, 7, None),)))
    told = scraped(pod_samples(on_another, PODS, {1: "uid-b"}.get))
    assert told["esg_pod_gpu_memory_used_bytes", "team", "b", "GPU-1"] == 7
    assert told["esg_pod_gpu_memory_limit_bytes", "team", "b", "GPU-0"] == 2048 * 2**20


def test_series_end_with_their_pod():
    """Nothing is left of a pod that is gone."""
    gpus = judged(device(0, processes=(Process(1, 7, 0.1),)))
    pods = dict(PODS)
    assert any("a" in key for key in scraped(pod_samples(gpus, pods, {1: "uid-a"}.get)))
    del pods["uid-a"]
    assert not any("a" in key for key in scraped(pod_samples(gpus, pods, {1: "uid-a"}.get)))


def test_labels_are_escaped():
    """Whatever a name has in it, the text can be read back."""
    odd = 'a"b\\c\nd'
    assert ("esg_agent_node_writes_total", odd, "annotation") in scraped(
        [("esg_agent_node_writes_total", (odd, "annotation"), 1)]
    )


def test_every_series_has_its_text():
    """A sentence each, and the names of Prometheus' conventions."""
    for name, series in SERIES.items():
        assert name.startswith("esg_")
        assert series.text.endswith(".")
