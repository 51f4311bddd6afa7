"""Values for the GPU stacks that clusters have: each renders, and docs/install.md lists it."""

import re
from pathlib import Path

import pytest

from scheduler.settings import Settings
from tests.chart.rendering import CHART, containers, environment, helm, one, render
from tests.testbed import REPOSITORY

pytestmark = pytest.mark.usefixtures("helm_built")
STACKS = sorted((CHART / "stacks").glob("*.yaml"))
PAGE = REPOSITORY / "docs" / "install.md"
# How the GPU reaches the agents' and the functions' containers: runtime class, CDI devices.
DELIVERY = {
    "argo-cd": ("", ""),
    "bare": ("", ""),
    "eks": ("", ""),
    "gke": ("nvidia", ""),
    "gpu-operator": ("nvidia", ""),
    "gpu-operator-nri": ("", "nvidia.com/gpu"),
    "k3s": ("nvidia", ""),
    "openshift": ("nvidia", ""),
    "rke2": ("nvidia", ""),
    "talos": ("nvidia", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS, ids=lambda path: path.stem)
def test_agents_and_functions_get_the_gpu_in_the_same_way(
    stack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the runtime class, or by devices that the container toolkit's NRI plugin reads."""
    objects = render(stack)
    template = one(objects, "DaemonSet")["spec"]["template"]
    by_nri = any(key.startswith("nvidia.cdi") for key in template["metadata"]["annotations"])
    for name in ("Deployment/webhook", "Deployment/extender"):
        for variable, value in environment(dict(containers(objects))[name]).items():
            monkeypatch.setenv(variable, value)
        settings = Settings()
        delivery = settings.runtime_class_name, settings.cdi_kind
        assert delivery == DELIVERY[stack.stem]
        assert delivery == (template["spec"].get("runtimeClassName", ""), delivery[1])
        assert by_nri == bool(settings.cdi_kind)


def test_the_page_lists_every_stack() -> None:
    """Each row of its table names a file, and each file has a row."""
    named = set(re.findall(r"`stacks/([-a-z0-9]+)\.yaml`", PAGE.read_text(encoding="utf-8")))
    assert named == {stack.stem for stack in STACKS} == DELIVERY.keys()


@pytest.mark.slow
def test_renderings_for_argo_cd_do_not_differ() -> None:
    """Otherwise every comparison with the cluster would show a difference."""
    command = ["template", "esg", str(CHART), "--values", str(CHART / "stacks" / "argo-cd.yaml")]
    assert helm(*command) == helm(*command)
