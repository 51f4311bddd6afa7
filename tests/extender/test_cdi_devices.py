"""The Binding names the pod's GPU as a CDI device where the node's runtime reads annotations."""

from pathlib import Path

import pytest

from scheduler.cluster.api import connect
from scheduler.cluster.link import Handlers, LiveCluster
from scheduler.extender.state import State
from scheduler.metrics import Metrics
from scheduler.model.documents import Workflow, to_manifest
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer
from tests.cluster.factories import kubeconfig_for
from tests.extender.bindings import BindingHarness
from tests.extender.factories import DOCUMENTS, node

PREFIX = "nvidia.cdi.k8s.io/"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("", {}), ("nvidia.com/gpu", {f"{PREFIX}container.function": "nvidia.com/gpu=GPU-n1-0"})],
)
async def test_the_device_is_written_with_the_binding(
    kind: str, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on the pod if and only if the pod has its grant; without a kind there is none."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    settings = Settings(cdi_kind=kind)
    state = State(settings, Metrics(settings.prices), clock=lambda: 1.0, monotonic=lambda: 1.0)
    state.nodes.replace([node("n1")])
    documents = [to_manifest(document) for document in DOCUMENTS]
    kinds = [isinstance(document, Workflow) for document in DOCUMENTS]
    state.documents.workflows.replace(d for d, w in zip(documents, kinds, strict=True) if w)
    state.documents.profiles.replace(d for d, w in zip(documents, kinds, strict=True) if not w)
    server = ApiServer()
    await server.start()
    async with connect(kubeconfig_for(server.url, tmp_path)) as api:
        link = LiveCluster(api, Handlers(state.nodes, state.pods))
        harness = BindingHarness(server, state, link)
        pending = harness.create()
        assert await harness.bind(pending, "n1") == ""
        annotations = harness.stored(pending)["metadata"]["annotations"]
    await server.stop()
    assert {k: v for k, v in annotations.items() if k.startswith(PREFIX)} == expected
