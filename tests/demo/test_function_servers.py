"""FunctionServers of the demo, and the tensors that check its answers."""

from scheduler.model.documents import Workflow
from scheduler.model.function_server import FunctionServer
from workbench.demo.function_servers import answer_factor, outputs_of, server_of


def workflow(after, inputs=None):
    """A workflow whose stages are named as their functions."""
    stages = [
        {"name": stage, "function": stage, "after": before, "inputs": (inputs or {}).get(stage, [])}
        for stage, before in after.items()
    ]
    metadata = {"name": "w", "namespace": "n"}
    spec = {"slo": {"latencyMs": 500}, "stages": stages}
    return Workflow.model_validate({"metadata": metadata, "spec": spec})


def test_the_gateway_creates_the_pods_of_a_function():
    """The document is valid, and its pods are for the extender."""
    server = FunctionServer.model_validate(server_of(("n", "f"), 8000))
    assert server.function_key == ("n", "f")
    assert server.spec.template["spec"]["schedulerName"] == "esg-scheduler"


def test_a_chain_doubles_at_each_stage():
    """The client knows the answer to its request."""
    assert answer_factor(workflow({"a": [], "b": ["a"], "c": ["b"]})) == 8.0


def test_a_join_adds_its_named_inputs():
    """Each stage doubles the sum of what it takes; an output has the name that is taken."""
    inputs = {"d": [{"name": "left", "from": "b.y"}, {"name": "right", "from": "c.z"}]}
    joined = workflow({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}, inputs)
    assert answer_factor(joined) == 2 * (4 + 4)
    assert outputs_of(("n", "b"), [joined]) == ("y",)
    assert outputs_of(("n", "a"), [joined]) == ("x",)
