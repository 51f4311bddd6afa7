"""Wrong options, settings and scenarios: message and exit status.

`tests/model/test_checking_documents.py` has the table of wrong documents, and
`tests/local/test_local.py` that of model servers.
"""

# ruff: noqa: E501 - a row of a table is one line

import re

import pytest

from tests.command_line import esg
from tests.testbed import REPOSITORY

pytestmark = pytest.mark.usefixtures("wide_terminal")
SAMPLES = REPOSITORY / "deploy" / "samples"
WORKFLOWS = SAMPLES / "workflows.yaml"
NO_API_SERVER = "error: no API server is configured: /nope does not exist, and this is not a pod; give a kubeconfig"
MEASURE = "profiles measure --url http://127.0.0.1:1 --model m --gpu-model x --memory-mib 1"
FRAME = re.compile(r"[─│╭╮╰╯\s]+")

OPTIONS = {
    "chek": (2, "No such command 'chek'. Did you mean 'check'?"),
    "mps chek": (2, "No such command 'chek'. Did you mean 'check'?"),
    "check": (2, "Missing argument 'PATH…'"),
    f"check {SAMPLES} --node x": (2, "No such option: --node"),
    "check /nope": (1, "error: /nope: the file: cannot be read: No such file or directory"),
    f"check {SAMPLES} --nodes /nope": (2, "/nope: No such file or directory"),
    f"check {SAMPLES} --nodes {WORKFLOWS}": (2, "no Node has a GPU in its annotation esg-scheduler.io/gpus; the node agent writes it"),
    "serve --port 99999": (2, "Invalid value for '--port'"),
    "serve --kubeconfig /nope": (1, NO_API_SERVER),
    "gateway --kubeconfig /nope": (1, NO_API_SERVER),
    "webhook --kubeconfig /nope": (1, NO_API_SERVER),
    "crds --apply --kubeconfig /nope": (1, NO_API_SERVER),
    "agent --kubeconfig /nope": (2, "Missing option '--node' (env var: 'NODE_NAME')"),
    "cleanup --lease x": (2, "Invalid value for --lease: give NAMESPACE/NAME"),
    "replay /nope": (2, "/nope: cannot be read: No such file or directory; save it with"),
    f"replay {WORKFLOWS}": (2, "workflows.yaml"),
    f"plan --profiles {SAMPLES} --workflow nope": (1, "error: workflow default/nope is not known (namespace default has: background-elimination, depth-recognition, expanded-image-classification, image-classification); create the Workflow, or correct the name"),
    "plan --profiles /nope --workflow x": (1, "error: /nope: the file: cannot be read: No such file or directory"),
    f"plan --profiles {SAMPLES} --workflow image-classification --stage x": (1, "has no stage 'x' (stages are super-resolution, segmentation, classification); correct the name"),
    f"plan --profiles {SAMPLES} --workflow image-classification --gpu-model T4": (1, "error: stage super-resolution: function super-resolution is profiled on NVIDIA A100-SXM4-80GB, not on T4; profile it there"),
    "simulate /nope.yaml": (1, "error: /nope.yaml: the file: No such file or directory"),
    "simulate --scenario x": (2, "No such option: --scenario"),
    "simulate --policy nope": (1, "error: no policy 'nope'; there are esg, exact, warm, "),
    "simulate --policy nope.py:A": (1, "nope.py does not exist"),
    "simulate --setting nope": (1, "'nope' is unknown; it is one of strict-light, "),
    "simulate --seed x": (1, "error: --seed: seeds.0: should be a valid integer"),
    "simulate --requests 0": (2, "Invalid value for '--requests'"),
    "simulate --requests x": (2, "Invalid value for '--requests'"),
    "simulate --jobs 0": (2, "Invalid value for '--jobs'"),
    "simulate --nodes 0": (1, "error: --nodes: nodes: should be greater than or equal to 1 (given: '0')"),
    "simulate --nodes /nope": (1, "error: --nodes: nodes: should be a number of nodes, or a file of Node documents (given: '/nope')"),
    "simulate --set nodes=abc": (1, "error: --set: nodes: should be a number of nodes, or a file of Node documents (given: 'abc')"),
    "simulate --profiles /nope": (1, "error: /nope: the file: cannot be read: No such file or directory"),
    "simulate --trace /nope": (1, "error: /nope: the file: cannot be read: No such file or directory"),
    "simulate --continue": (1, "error: --continue: goes on with the runs in a folder; name it by --out"),
    "simulate --set x": (1, "error: --set: 'x': must be key=value"),
    "simulate --set nodez=3": (1, "error: --set: nodez: unknown key; did you mean nodes?"),
    "simulate --set nodes=[1": (1, "error: --set: nodes: is not YAML"),
    "simulate --set noise_ratio=-1": (1, "error: --set: noise_ratio: should be greater than or equal to 0 (given: -1)"),
    "simulate --set rules.group_siz=2": (1, "error: --set: rules.group_siz: unknown key; did you mean group_size?"),
    "simulate --set rules.group_size=0": (1, "error: --set: rules: group_size must be from 1 to 32"),
    "simulate --set placement=best": (1, "error: --set: placement: should be 'pack', 'spread' or 'defrag' (given: 'best')"),
    "simulate --set objective=99": (1, "error: --set: objective: should be less than 1 (given: 99)"),
    "simulate --set workload.name=nope": (1, "'nope' is unknown; it is one of paper, poisson, "),
    "simulate --set workload.name=poisson": (1, "workload poisson: rateRps: is missing"),
    "simulate --set sweep.seeds=[1]": (1, "sweep: seeds cannot vary"),
    "demo --nodes /nope": (2, "Invalid value for '--nodes': file '/nope' does not exist"),
    "demo --profiles /nope": (2, "Invalid value for '--profiles': path '/nope' does not exist"),
    "demo --load huge": (2, "Invalid value for '--load'"),
    "demo --seconds 0": (2, "Invalid value for '--seconds'"),
    "profiles import /nope --gpu-model x --out y": (1, "error: /nope: the file: cannot be read: No such file or directory"),
    "profiles import /nope --gpu-model x": (2, "Missing option '--out'"),
    "samples": (2, "Missing option '--out'"),
    "samples --out /proc/x": (1, "error: /proc/x: No such file or directory"),
    "reference --out /proc/x": (1, "error: /proc/x: No such file or directory"),
    "local": (2, "Missing option '--file' / '-f'"),
    "local -f /nope --server a=http://a:1": (2, "path '/nope' does not exist"),
    f"local -f {SAMPLES}": (2, "Missing option '--server'"),
    "calibrate --from nowhere": (1, "error: 'nowhere' is no URL; write http://HOST:8890"),
    "calibrate --from http://127.0.0.1:1": (1, "error: cannot read http://127.0.0.1:1: Connection refused"),
    "calibrate /nope": (1, "error: /nope: the file: cannot be read: No such file or directory"),
    f"calibrate {SAMPLES}": (1, f"error: {SAMPLES}: the file: cannot be read: Is a directory"),
    "profiles show /nope": (1, "error: /nope cannot be read: No such file or directory"),
    "profiles show http://127.0.0.1:1/x": (1, "error: http://127.0.0.1:1/x cannot be read: Connection refused"),
    f"{MEASURE}": (1, "error: http://127.0.0.1:1: no server answers (cannot connect to 127.0.0.1:1: Connection refused)"),
    f"{MEASURE} --points {SAMPLES}": (1, f"error: {SAMPLES}: the file: cannot be read: Is a directory"),
    "status --from http://127.0.0.1:1": (1, "error: cannot read http://127.0.0.1:1: Connection refused; give a gateway's health port"),
    "status --from nowhere": (1, "error: 'nowhere' is no URL; write http://HOST:8890"),
    "paper --document /nope": (1, "error: /nope: No such file or directory"),
}  # fmt: skip
SETTINGS = {
    "ESG_PORT=x": "error: ESG_PORT: Input should be a valid integer, unable to parse string as an integer (given: 'x')",
    "ESG_PORT=99999": "error: ESG_PORT: Input should be less than or equal to 65535 (given: '99999')",
    "ESG_LOG_LEVEL=loud": "error: ESG_LOG_LEVEL: Input should be 'debug', 'info', 'warning' or 'error' (given: 'loud')",
    "ESG_MARGIN_RATIO=-1": "error: ESG_MARGIN_RATIO: Input should be greater than or equal to 0 (given: '-1')",
    "ESG_STAGES_MAX=0": "error: ESG_STAGES_MAX: Input should be greater than or equal to 1 (given: '0')",
    "ESG_GPU_HOUR_DOLLARS=free": "error: ESG_GPU_HOUR_DOLLARS: Input should be a valid number",
    "ESG_ON_LOST_SLO=wait": "error: ESG_ON_LOST_SLO: Input should be 'fastest' or 'cheapest' (given: 'wait')",
    "ESG_PLACEMENT=x": "error: ESG_PLACEMENT: Input should be 'pack', 'spread' or 'defrag' (given: 'x')",
    "ESG_GATEWAY_PORT=x": "error: ESG_GATEWAY_PORT: Input should be a valid integer",
    "ESG_GATEWAY_SHARE=all": "error: ESG_GATEWAY_SHARE: Input should be 'pooled' or 'reserved' (given: 'all')",
    "ESG_GATEWAY_BODY_MAX_MIB=0": "error: ESG_GATEWAY_BODY_MAX_MIB: Input should be greater than or equal to 1 (given: '0')",
    "ESG_GATEWAY_TLS_CERT=/x": "error: ESG_GATEWAY_…: tls_cert and tls_key must both be set, or neither",
    "ESG_GATEWAY_PEERS=a=b": "error: ESG_GATEWAY_…: peers needs pod_name and pod_namespace; set both",
}  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), OPTIONS.items(), ids=OPTIONS)
def test_wrong_options(words, expected, monkeypatch):
    """A wrong command line has status 2, and an error status 1, with a sentence alone."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    status, message = expected
    done = esg(*words.split())
    assert done.exit_code == status, done.output
    assert message in FRAME.sub(" ", done.stderr)
    assert "Traceback" not in done.output
    assert "[Errno" not in done.output


@pytest.mark.parametrize(("assignment", "message"), SETTINGS.items(), ids=SETTINGS)
def test_wrong_settings(monkeypatch, assignment, message):
    """The variable is named with its value, in one line, and the status is 2."""
    name, _, value = assignment.partition("=")
    monkeypatch.setenv(name, value)
    done = esg("gateway", "--kubeconfig", "/nope")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


POLICIES = {
    "raise ValueError('no')": "cannot be imported: ValueError: no ({file}:1)",
    "def f(:": "cannot be imported: SyntaxError: invalid syntax (policy.py, line 1)",
    "A = 1": "is no class derived from Policy",
    "": "the file has no class 'A'",
    (
        "from workbench.simulation.policies.minimum import Minimum\n"
        "class A(Minimum):\n"
        "  def __init__(self, context): raise KeyError('no')\n"
    ): "constructed for its run: KeyError: 'no' ({file}:3)",
    (
        "from workbench.simulation.policies.minimum import Minimum\n"
        "class A(Minimum):\n"
        "  def candidates(self, *_): return 1 / 0\n"
    ): "ZeroDivisionError: division by zero ({file}:3)",
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), POLICIES.items(), ids=range(len(POLICIES)))
def test_wrong_policies(tmp_path, text, message):
    """File and line of the user's code are named, and there is no table without a run."""
    file = tmp_path / "policy.py"
    file.write_text(text, encoding="utf-8")
    done = esg("simulate", "--policy", f"{file}:A", "--requests", "100", "--jobs", "1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert message.format(file=file) in done.stderr
