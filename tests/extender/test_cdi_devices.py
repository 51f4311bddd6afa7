"""The Binding names the pod's GPU as a CDI device where the node's runtime reads annotations."""

from pathlib import Path

import pytest

from tests.extender.bindings import binding_harness
from tests.extender.harness import Clock

PREFIX = "nvidia.cdi.k8s.io/"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("", {}), ("nvidia.com/gpu", {f"{PREFIX}container.function": "nvidia.com/gpu=GPU-n1-0"})],
)
async def test_the_device_is_written_with_the_binding(
    kind: str, expected: dict[str, str], tmp_path: Path, loopback_http: None
) -> None:
    """It is on the pod if and only if the pod has its grant; without a kind there is none."""
    clock = Clock(1.0)
    running = binding_harness(tmp_path, wall=clock, monotonic=clock, cdi_kind=kind)
    async with running as binder:
        pending = binder.create()
        assert await binder.bind(pending, "n1") == ""
        annotations = binder.stored(pending)["metadata"]["annotations"]
    assert {k: v for k, v in annotations.items() if k.startswith(PREFIX)} == expected
