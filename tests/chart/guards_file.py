"""Generator of deploy/guards.yaml: the chart's admission policies, for installations without Helm.

python -m tests.chart.guards_file    # called by `make guards`; needs Helm
"""

from tests.chart.rendering import CHART, helm
from tests.testbed import REPOSITORY

PATH = REPOSITORY / "deploy" / "guards.yaml"
NAMESPACE = "kube-system"
RELEASE = "esg-scheduler"
_TEMPLATES = ("functions", "grant", "hosts", "measurements", "nodes", "pools", "servers")
_OF_HELM = ("# Source: ", "    helm.sh/chart: ", "    app.kubernetes.io/managed-by: ")
_HEAD = f"""\
# Admission policies, rendered by `make guards` from the chart's templates/guards: edit those.
#
# They are for programs whose pods run in the namespace {NAMESPACE}, with the ServiceAccounts
# {RELEASE} (`esg serve` and kube-scheduler), {RELEASE}-agent (`esg agent`) and
# {RELEASE}-gateway (`esg gateway`).
# Replace these names if yours differ, and /run/esg-scheduler/mps if ESG_MPS_ROOT does. Label the
# namespaces whose creators of pods are not trusted:
#     kubectl label namespace NAME esg-scheduler.io/tenant=true
"""


def text() -> str:
    """Render the file.

    Raises:
        RefusedError: Helm failed.
    """
    shown = [
        flag for name in _TEMPLATES for flag in ("--show-only", f"templates/guards/{name}.yaml")
    ]
    rendered = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *shown)
    lines = [line for line in rendered.splitlines() if not line.startswith(_OF_HELM)]
    return _HEAD + "\n".join(lines).replace(f"{RELEASE}-{NAMESPACE}-", f"{RELEASE}-") + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
