"""Validation of every object by the OpenAPI schemas of all supported Kubernetes versions."""

from pathlib import Path

import kubernetes_validate
import pytest

from tests.chart.rendering import EVERYTHING, RefusedError, one, render

pytestmark = pytest.mark.usefixtures("helm_built")
VERSIONS = [f"1.{minor}" for minor in range(30, 37)]
CLAIMS_FROM = 34
"""Minor version that has resource.k8s.io/v1."""
# Kinds of operators: Kubernetes has no schema of them.
FOREIGN = {"Issuer", "Certificate", "ServiceMonitor", "PrometheusRule"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "version"),
    [
        *(pytest.param([EVERYTHING], v, id=f"everything-{v}") for v in VERSIONS),
        *(pytest.param([], v, id=f"defaults-{v}") for v in (VERSIONS[0], VERSIONS[-1])),
    ],
)
def test_objects_are_valid(values: list[Path], version: str) -> None:
    """In the version's own schema an unknown field is an error."""
    without_claims = {"dra": {"enabled": False}} if int(version.split(".")[1]) < CLAIMS_FROM else {}
    for document in render(*values, kubernetes=f"{version}.0", **without_claims):
        if document["kind"] not in FOREIGN:
            kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.slow
def test_resource_claims_need_their_api() -> None:
    """Helm refuses them before that version, with the reason."""
    claims = {"dra": {"enabled": True}}
    with pytest.raises(RefusedError, match=r"dra\.enabled needs Kubernetes 1\.34"):
        render(kubernetes=f"1.{CLAIMS_FROM - 1}.9", **claims)
    objects = render(kubernetes=f"1.{CLAIMS_FROM}.0", **claims)
    [agent, *_] = one(objects, "DaemonSet", "-agent")["spec"]["template"]["spec"]["containers"]
    environment = {variable["name"]: variable.get("value") for variable in agent["env"]}
    folder = environment["ESG_AGENT_KUBELET_ROOT"]
    mounted = {mount["mountPath"] for mount in agent["volumeMounts"]}
    assert {f"{folder}/plugins", f"{folder}/plugins_registry", "/var/run/cdi"} <= mounted
    for name in ("-scheduler", "-webhook"):
        template = one(objects, "Deployment", name)["spec"]["template"]["spec"]
        containers = [*template["containers"], *template.get("initContainers", ())]
        variables = [variable for c in containers for variable in c.get("env", ())]
        assert {"name": "ESG_RESOURCE_CLAIMS", "value": "true"} in variables


def test_an_unknown_field_is_an_error() -> None:
    """The schemas are installed, and validation is strict."""
    deployment = one(render(), "Deployment", "-webhook")
    misspelt = {**deployment, "spec": {**deployment["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(misspelt, VERSIONS[-1], strict=True)
