"""Pods that the gateway creates from a template, as the webhook and the extender complete them."""

import re

import pytest

from scheduler.gateway.scaling.pool_pod import pool_pod_object
from scheduler.model.documents import GridPoint
from scheduler.model.function_server import FunctionServer
from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.pod import function_pod
from tests.webhook.factories import Json, admission, admitted, candidate, environment, plan

ROW = GridPoint(batch=16, cpu=2, gpu_percent=28)


def server(*variables: Json, arguments: list[str]) -> FunctionServer:
    """Create a server whose template has these variables and arguments."""
    container = {"name": "server", "image": "i", "env": list(variables), "args": arguments}
    spec = {
        "function": "f",
        "template": {"spec": {"containers": [container]}},
        "protocol": "http-binary",
        "port": 8000,
    }
    metadata = {"name": "s", "namespace": "default", "uid": "u"}
    return FunctionServer.model_validate({"metadata": metadata, "spec": spec})


def started(raw: Json) -> tuple[dict[str, str], list[str]]:
    """Return variables and arguments of the first container as a kubelet gives them to it."""
    annotations, container = raw["metadata"]["annotations"], raw["spec"]["containers"][0]
    values: dict[str, str] = {}

    def expanded(text: str) -> str:
        return re.sub(r"\$\((\w+)\)", lambda match: values.get(match[1], match[0]), text)

    for name, value in environment(container).items():
        field = re.fullmatch(r"metadata\.annotations\['(.+)'\]", value)
        values[name] = annotations[field[1]] if field else expanded(value)
    return values, list(map(expanded, container["args"]))


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("batch", [1, 16])
def test_a_template_can_use_the_granted_batch(batch, pooled):
    """`$(ESG_BATCH)` in a template is the batch of the grant, in variables and in arguments."""
    row = ROW.model_copy(update={"batch": batch})
    variable = {"name": "MAX_BATCH", "value": "$(ESG_BATCH)"}
    own = server(variable, arguments=["--batch=$(ESG_BATCH)", "--name=$(UNKNOWN)"])
    created = pool_pod_object("s-1", own, row, "esg-scheduler", pooled=pooled)
    assert function_pod(created).configuration == row
    exact = plan(candidate(row.cpu, row.gpu_percent, row.batch))
    after = admitted(admission(lambda pod: exact), created)
    grant = Grant("GPU-0", row.gpu_percent, 1000, row.batch, {"cpu": row.cpu})
    after["metadata"]["annotations"] |= grant_annotations(grant)
    variables, arguments = started(after)
    assert variables["MAX_BATCH"] == str(batch)
    assert arguments == [f"--batch={batch}", "--name=$(UNKNOWN)"]
