"""Every object is one that each supported version of Kubernetes knows, to the last field."""

from pathlib import Path

import kubernetes_validate
import pytest

from tests.chart.rendering import EVERYTHING, render

pytestmark = pytest.mark.usefixtures("helm_is_there")
VERSIONS = [f"1.{minor}" for minor in range(30, 37)]
# Of operators, whose schemas are not Kubernetes' own.
FOREIGN = {"Issuer", "Certificate", "ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize(
    ("values", "version"),
    [
        *(pytest.param([EVERYTHING], version, id=f"everything-{version}") for version in VERSIONS),
        *(pytest.param([], v, id=f"defaults-{v}") for v in (VERSIONS[0], VERSIONS[-1])),
    ],
)
def test_objects_are_valid(values: list[Path], version: str) -> None:
    """By the version's own OpenAPI schema, where a field that it does not know is an error."""
    for each in render(*values, kubernetes=f"{version}.0"):
        if each["kind"] not in FOREIGN:
            kubernetes_validate.validate(each, version, strict=True)


def test_a_field_that_is_not_known_would_be_found() -> None:
    """The schemas are there, and are strict."""
    [deployment] = [each for each in render() if each["kind"] == "Deployment"]
    slipped = {**deployment, "spec": {**deployment["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(slipped, VERSIONS[-1], strict=True)
