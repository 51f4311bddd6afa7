"""Bad nodes: each has a clear reason, and the others stay usable."""

# ruff: noqa: E501 - a row of a table is one line

import json

import pytest

from tests.extender.factories import DOCUMENTS, GROUP, bare_node, gpu, node, pod
from tests.extender.harness import embedded

pytestmark = pytest.mark.usefixtures("goes_on")


def inventory(*gpus):
    return json.dumps(list(gpus))


BROKEN_NODES = {
    # the annotation as it stands, and the reason that filter gives
    "not JSON": ("{oops", "annotation esg-scheduler.io/gpus: Invalid JSON: "),
    "empty": ("", "annotation esg-scheduler.io/gpus: Invalid JSON: "),
    "an object": ("{}", "annotation esg-scheduler.io/gpus: Input should be a valid array"),
    "a GPU that is a word": ('["A100"]', "annotation esg-scheduler.io/gpus[0]: "),
    "a missing field": ('[{"index": 0}]', "annotation esg-scheduler.io/gpus[0].uuid: Field required"),
    "a duplicate uuid": (inventory(gpu(0, "b"), gpu(1, "b", uuid="GPU-b-0")), "annotation esg-scheduler.io/gpus: two GPUs have the same uuid"),
    "memory below zero": (inventory(gpu(0, "b"), gpu(1, "b", memory_mib=-1)), "annotation esg-scheduler.io/gpus[1].memory_mib: Input should be greater than or equal to 1"),
    "memory in words": (inventory(gpu(0, "b", memory_mib="80GB")), "gpus[0].memory_mib: Input should be a valid integer"),
    "memory beyond every type": (inventory(gpu(0, "b", memory_mib=10**30)), "gpus[0].memory_mib: Input should be less than"),
    "an index below zero": (inventory(gpu(-1, "b")), "gpus[0].index: Input should be greater than or equal to 0"),
    "healthy in words": (inventory(gpu(0, "b", healthy="yes")), "gpus[0].healthy: Input should be a valid boolean"),
    "a uuid with a space": (inventory(gpu(0, "b", uuid="GPU 0")), "gpus[0].uuid: String should match pattern"),
    "a uuid with a line end": (inventory(gpu(0, "b", uuid="GPU-0\n")), "gpus[0].uuid: String should match pattern"),
    "more GPUs than a node has": (inventory(*(gpu(i, "b") for i in range(65))), "annotation esg-scheduler.io/gpus: Tuple should have at most 64 items"),
    "nested too deeply": ("[" * 100_000, "annotation esg-scheduler.io/gpus: Invalid JSON: "),
    "a lone surrogate": ('[{"model": "\\ud800"}]', "annotation esg-scheduler.io/gpus: Invalid JSON: "),
}  # fmt: skip


@pytest.fixture(scope="module")
def broken():
    """A cluster of broken nodes, each named by its fault, and a valid one."""
    nodes = [node(name, inventory=text) for name, (text, _) in BROKEN_NODES.items()]
    nodes += [node("sound"), bare_node("bare"), node("half-sound", cpu="lots")]
    nodes.append(
        node("ill")
        | {
            "metadata": {
                "name": "ill",
                "annotations": {f"{GROUP}/gpus": inventory(gpu(0, "ill", healthy=False))},
            }
        }
    )
    nodes.append(node("other", inventory=inventory(gpu(0, "other", model="Tesla T4"))))
    nodes.append({"metadata": {"name": "no status"}})
    with embedded(nodes=nodes, documents=DOCUMENTS) as running:
        yield running


@pytest.mark.parametrize("name", BROKEN_NODES)
def test_a_broken_node(broken, name):
    """Its reason names the annotation, the field and the fault; the valid node passes."""
    answer = broken.filter(pod("half"), name, "sound")
    assert answer["NodeNames"] == ["sound"]
    assert BROKEN_NODES[name][1] in answer["FailedAndUnresolvableNodes"][name]
    assert len(answer["FailedAndUnresolvableNodes"][name]) < 300
    assert answer["Error"] == ""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bare", "the node has no GPU to share (no inventory annotation)"),
        ("half-sound", "status.allocatable.cpu: 'lots' is no Kubernetes quantity; write it as 2, 500m or 1.5"),
        ("ill", "its GPUs of a fitting model are unhealthy (GPU 0)"),
        ("other", "its GPUs are Tesla T4; the plan fits on NVIDIA A100-SXM4-80GB"),
        ("no status", "the node has no GPU to share (no inventory annotation)"),
    ],
)  # fmt: skip
def test_a_node_that_cannot_serve(broken, name, says):
    """A node without a usable GPU has a reason that eviction cannot change."""
    answer = broken.filter(pod("half"), name, "sound")
    assert {name: says} == answer["FailedAndUnresolvableNodes"]
    assert answer["NodeNames"] == ["sound"]
