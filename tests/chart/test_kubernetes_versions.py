"""Validation of every object by the OpenAPI schemas of all supported Kubernetes versions."""

from pathlib import Path

import kubernetes_validate
import pytest

from tests.chart.rendering import EVERYTHING, one, render

pytestmark = pytest.mark.usefixtures("helm_built")
VERSIONS = [f"1.{minor}" for minor in range(30, 37)]
# Kinds of operators: Kubernetes has no schema of them.
FOREIGN = {"Issuer", "Certificate", "ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize(
    ("values", "version"),
    [
        pytest.param([EVERYTHING], VERSIONS[-1], id=f"everything-{VERSIONS[-1]}"),
        *(
            pytest.param([EVERYTHING], v, id=f"everything-{v}", marks=pytest.mark.slow)
            for v in VERSIONS[:-1]
        ),
        *(
            pytest.param([], v, id=f"defaults-{v}", marks=pytest.mark.slow)
            for v in (VERSIONS[0], VERSIONS[-1])
        ),
    ],
)
def test_objects_are_valid(values: list[Path], version: str) -> None:
    """In the version's own schema an unknown field is an error."""
    for document in render(*values, kubernetes=f"{version}.0"):
        if document["kind"] not in FOREIGN:
            kubernetes_validate.validate(document, version, strict=True)


def test_an_unknown_field_is_an_error() -> None:
    """The schemas are installed, and validation is strict."""
    deployment = one(render(), "Deployment", "-webhook")
    misspelt = {**deployment, "spec": {**deployment["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(misspelt, VERSIONS[-1], strict=True)
