"""``esg check`` names file, document and field of each fault, and its exit status is 1."""

# ruff: noqa: E501 - a row of a table is one line

import re

import pytest
import yaml

from tests.command_line import esg
from tests.raw_documents import POINT, PROFILE, SERVER, WORKFLOW, changed
from tests.testbed import REPOSITORY

SIDECAR = {
    "metadata": {"labels": {"app": "f"}, "annotations": {"esg-scheduler.io/container": "server"}},
    "spec": {
        "containers": [
            {"name": "proxy", "resources": {"requests": {"cpu": "100m"}}},
            {"name": "server", "resources": {"limits": {"memory": "2Gi"}}},
        ]
    },
}
LINE = re.compile(r"(?<=documents\.yaml):\d+|(?<=bad\.yaml):\d+")
SEVERAL = [{"name": "a", "function": "f"}, {"name": "b", "function": "f", "after": ["a"]}]


def workflow(path, value):
    return [changed(WORKFLOW, path, value), PROFILE]


def profile(path, value):
    return [WORKFLOW, changed(PROFILE, path, value)]


def server(path, value):
    return [WORKFLOW, PROFILE, changed(SERVER, path, value)]


def of_template(template):
    """Return a server whose pods are created from a template."""
    return changed(changed(SERVER, "spec.selector", None), "spec.template", template)


def template(part):
    return [
        WORKFLOW, PROFILE, of_template({"spec": {"containers": [{"name": "c"}]}} | part),
    ]  # fmt: skip


def point(field, value):
    return profile(f"spec.gpus.0.configurations.0.{field}", value)


def points(*changes):
    return profile("spec.gpus.0.configurations", [POINT | change for change in changes])


def check(folder, content, name="documents.yaml"):
    """Run ``esg check`` on one file; return its exit status and output."""
    file = folder / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif isinstance(content, str):
        file.write_text(content, encoding="utf-8")
    else:
        file.write_text(yaml.safe_dump_all(content), encoding="utf-8")
    done = esg("check", folder)
    return done.exit_code, done.output.replace(f"{folder}/", "")


POINT_AT = "documents.yaml: FunctionProfile f: spec.gpus[0].configurations[0]"
SERVER_AT = "documents.yaml: FunctionServer default/s: "
FED = SEVERAL[1] | {"inputs": [{"name": "x", "from": "a.y"}]}
STAGES = "documents.yaml: Workflow default/w: spec: stages: "
FAULTS = {
    "an unknown field": (workflow("spec.priority", 1), "documents.yaml: Workflow default/w: spec.priority: unknown field; remove or rename it"),
    "an unknown field of a point": (point("gpu", 1), f"{POINT_AT}.gpu: unknown field"),
    "a field in snake case": (point("gpu_percent", 50), f"{POINT_AT}.gpu_percent: unknown field"),
    "a missing field": (workflow("spec.slo", None), "Workflow default/w: spec.slo: Field required"),
    "no name": (workflow("metadata.name", None), "documents.yaml: Workflow (document 1): metadata.name: Field required"),
    "a number as metadata": (workflow("metadata", 7), "documents.yaml: Workflow (document 1): metadata: Input should be a mapping (given: 7)"),
    "a name with capitals": (workflow("metadata.name", "W"), "metadata.name: must be lower-case letters, digits and '-', with a letter or digit at both ends"),
    "a name with a line end": (workflow("metadata.name", "w\n"), "metadata.name: must be lower-case letters, digits and '-', with a letter or digit at both ends"),
    "a Unicode name": (workflow("metadata.name", "größe"), "metadata.name: must be lower-case letters, digits and '-', with a letter or digit at both ends"),
    "a very long name": (workflow("metadata.name", "w" * 5000), "metadata.name: String should have at most 63 characters"),
    "a name that is a number": (workflow("metadata.name", 7), "metadata.name: Input should be a valid string (given: 7)"),
    "a cycle": (workflow("spec.stages", [SEVERAL[0] | {"after": ["b"]}, SEVERAL[1]]), f"{STAGES}a cycle, "),
    "a stage after itself": (workflow("spec.stages.0.after", ["a"]), f"{STAGES}a cycle, a after a"),
    "after no such stage": (workflow("spec.stages.0.after", ["z"]), f"{STAGES}'a' comes after 'z', which is not a stage of this workflow (stages are a)"),
    "a stage name twice": (workflow("spec.stages", [SEVERAL[0], SEVERAL[0]]), f"{STAGES}the name 'a' is used 2 times; use it once"),
    "an input from a later stage": (workflow("spec.stages", [SEVERAL[0], FED | {"after": []}]), "spec.stages[1]: inputs: 'x' is from 'a.y', and 'a' is not in 'after' (which has none); add it there"),
    "an input without an output": (workflow("spec.stages", [SEVERAL[0], FED | {"inputs": [{"name": "x", "from": "a"}]}]), "spec.stages[1].inputs[0].from: must be STAGE.OUTPUT, as encoder.y (given: 'a')"),
    "an input twice": (workflow("spec.stages", [SEVERAL[0], FED | {"inputs": FED["inputs"] * 2}]), "spec.stages[1]: inputs: the name 'x' is used 2 times; use it once"),
    "an unknown reaction to late requests": (workflow("spec.onLate", "never"), "spec.onLate: Input should be 'cheapest', 'fastest' or 'drop' (given: 'never')"),
    "a server without pods": (server("spec.selector", None), f"{SERVER_AT}spec: selector, template: neither is given; give a selector for pods that exist, or a template for pods that the gateway creates"),
    "a server with pods twice": (server("spec.template", {"spec": {"containers": [{"name": "c"}]}}), f"{SERVER_AT}spec: selector, template: both are given"),
    "a template without containers": (server("spec.template", {"spec": {}}), f"{SERVER_AT}spec.template: has no spec.containers"),
    **{
        f"a template with {name}": (template(part), f"{SERVER_AT}spec.template: {problem}")
        for name, part, problem in (
            ("a text as container", {"spec": {"containers": ["c"]}}, "spec.containers: an item is not an object"),
            ("a text in place of an init container", {"spec": {"containers": [{"name": "c"}], "initContainers": ["c"]}}, "spec.initContainers: an item is not an object"),
            ("a number as init containers", {"spec": {"containers": [{"name": "c"}], "initContainers": 7}}, "spec.initContainers: '7' is not a list"),
            ("a text as resources", {"spec": {"containers": [{"name": "c", "resources": "gpu"}]}}, "spec.containers[0].resources: 'gpu' is not an object"),
            ("a number as limits", {"spec": {"containers": [{"name": "c", "resources": {"limits": 7}}]}}, "spec.containers[0].resources.limits: '7' is not an object"),
            ("a label that is a number", {"metadata": {"labels": {1: "app"}}}, "metadata.labels: the key 1 is not a text; quote it"),
            ("a text as metadata", {"metadata": "app"}, "metadata: 'app' is not an object"),
            ("a text as labels", {"metadata": {"labels": "app"}}, "metadata.labels: 'app' is not an object"),
            ("a number as label", {"metadata": {"labels": {"app": 1}}}, "metadata.labels.app: '1' is not a text; quote it"),
            ("our label", {"metadata": {"labels": {"esg-scheduler.io/request": "r"}}}, "metadata.labels: the gateway sets esg-scheduler.io/request on each pod; remove it"),
            ("our annotation", {"metadata": {"annotations": {"esg-scheduler.io/rate": "5"}}}, "metadata.annotations: the gateway sets esg-scheduler.io/rate"),
            ("a node", {"spec": {"containers": [{"name": "c"}], "nodeName": "n"}}, "spec.nodeName: the scheduler chooses the node; remove it, or use nodeSelector"),
            ("a GPU", {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}, "spec.containers[0].resources.limits: the gateway chooses the share of a GPU; remove nvidia.com/gpu"),
            ("a share", {"spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i", "resources": {"requests": {"esg-scheduler.io/gpu-percent": 5}}}]}}, "spec.initContainers[0].resources.requests: the gateway chooses the share of a GPU"),
            ("vCPUs", {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1}}}]}}, "spec.containers[0].resources.limits: the gateway chooses the vCPUs of this container; remove cpu"),
        )
    },
    "a selector of everything": (server("spec.selector.matchLabels", {}), f"{SERVER_AT}spec.selector.matchLabels: Dictionary should have at least 1 item"),
    "a number of pods that exist": (server("spec.minPods", 1), f"{SERVER_AT}spec: minPods: applies to a template; scale selected pods by their own Deployment"),
    "a share of pods that exist": (server("spec.share", "pooled"), f"{SERVER_AT}spec: share: applies to a template; give selected pods of a pool the label esg-scheduler.io/pool: member"),
    "a share of another kind": ([WORKFLOW, PROFILE, changed(changed(changed(SERVER, "spec.selector", None), "spec.template", {"spec": {"containers": [{"name": "c"}]}}), "spec.share", "shared")], f"{SERVER_AT}spec.share: Input should be 'pooled' or 'reserved'"),
    "more pods than at most": ([WORKFLOW, PROFILE, changed(changed(changed(SERVER, "spec.selector", None), "spec.template", {"spec": {"containers": [{"name": "c"}]}}), "spec.minPods", 21)], f"{SERVER_AT}spec: minPods: 21 is above maxPods, 20; lower it"),
    "a server of an unknown function": (server("spec.function", "g"), f"{SERVER_AT}spec.function: function 'g' has no FunctionProfile"),
    "two servers of a function": ([*server("metadata.name", "t"), SERVER], f"{SERVER_AT}spec.function: function 'f' has the FunctionServer 't' in this namespace too; keep one"),
    "a function of another group": ([changed(WORKFLOW, "metadata.labels", {"esg-scheduler.io/gateway-group": "a"}), PROFILE, SERVER], "documents.yaml: Workflow default/w: metadata.labels: function 'f' is of no gateway group, and this Workflow of the gateway group 'a'; give those that share it the same esg-scheduler.io/gateway-group"),
    "an empty group": ([changed(WORKFLOW, "metadata.labels", {"esg-scheduler.io/gateway-group": ""}), PROFILE, SERVER], "documents.yaml: Workflow default/w: metadata.labels: esg-scheduler.io/gateway-group is empty, and no gateway serves such an object; name a group, or remove the label"),
    "a server twice": ([WORKFLOW, PROFILE, SERVER, SERVER], f"{SERVER_AT}metadata.name: is in documents.yaml too; keep one"),
    "an unknown protocol": (server("spec.protocol", "http"), f"{SERVER_AT}spec.protocol: Input should be 'http-binary', 'http-json' or 'grpc' (given: 'http')"),
    "port 0": (server("spec.port", 0), f"{SERVER_AT}spec.port: Input should be greater than or equal to 1 (given: 0)"),
    "no slots": (server("spec.slots", 0), f"{SERVER_AT}spec.slots: Input should be greater than or equal to 1 (given: 0)"),
    "no stages": (workflow("spec.stages", []), "spec.stages: List should have at least 1 item"),
    "too many stages": (workflow("spec.stages", [{"name": f"s{i}", "function": "f"} for i in range(33)]), "spec.stages: List should have at most 32 items"),
    "a stage without profile": (workflow("spec.stages.0.function", "g"), "documents.yaml: Workflow default/w: spec.stages[0].function: stage 'a' runs 'g', which has no FunctionProfile"),
    "SLO of zero": (workflow("spec.slo.latencyMs", 0), "spec.slo.latencyMs: Input should be greater than 0 (given: 0)"),
    "SLO of a week": (workflow("spec.slo.latencyMs", 7 * 86_400_000), "spec.slo.latencyMs: Input should be less than or equal to 86400000"),
    "SLO not a number": (workflow("spec.slo.latencyMs", float("nan")), "spec.slo.latencyMs: Input should be"),
    "SLO in text": (workflow("spec.slo.latencyMs", "500"), "spec.slo.latencyMs: Input should be a valid number (given: '500')"),
    "SLO with a unit": (workflow("spec.slo.latencyMs", "400ms"), "spec.slo.latencyMs: Input should be a valid number (given: '400ms'); write 400: its unit stands in the name"),
    "memory with a unit": (point("memoryMib", "2Gi"), f"{POINT_AT}.memoryMib: Input should be a valid integer (given: '2Gi'); write 2048: its unit stands in the name"),
    "vCPUs in text": (point("cpu", "2"), f"{POINT_AT}.cpu: Input should be a valid integer (given: '2'); write 2 without quotes"),
    "vCPUs in thousandths": (point("cpu", "500m"), f"{POINT_AT}.cpu: Input should be a valid integer (given: '500m'); write a number, without unit and quotes"),
    "SLO with an exponent": (workflow("spec.slo.latencyMs", "1e3"), "spec.slo.latencyMs: Input should be a valid number (given: '1e3'); write 1000 without quotes and exponent"),
    "SLO with a comma": ("kind: Workflow\nmetadata: {name: w}\nspec: {slo: {latencyMs: 2,000}, stages: []}", "spec.slo[0]: Keys should be strings (given: 0); write numbers without a comma between their digits"),
    "a stage that is a name": (workflow("spec.stages", ["a"]), "spec.stages[0]: Input should be a mapping (given: 'a')"),
    "after without a list": (workflow("spec.stages.0.after", "b"), "spec.stages[0].after: Input should be a list (given: 'b'); write ['b']"),
    "stages that are a mapping": (workflow("spec.stages", {"name": "a"}), "spec.stages: Input should be a list; write each item after a dash"),
    "SLO true": (workflow("spec.slo.latencyMs", True), "spec.slo.latencyMs: Input should be a valid number (given: True)"),
    "an objective in percent": (workflow("spec.slo.objective", 99), "spec.slo.objective: Input should be less than 1 (given: 99); 99 % is 0.99"),
    "an objective of 99.9 %": (workflow("spec.slo.objective", "99.9%"), "spec.slo.objective: Input should be a valid number (given: '99.9%'); 99.9 % is 0.999"),
    "an objective of 1": (workflow("spec.slo.objective", 1), "spec.slo.objective: Input should be less than 1"),
    "a hole in the grid": (points({}, {"batch": 2, "cpu": 2}), "documents.yaml: FunctionProfile f: spec.gpus[0]: configurations: a hole at batch 1, cpu 2, gpuPercent 50 (2 of the grid's 4 points are there); add what is missing, or set sparse: true"),
    "a point twice": (points({}, {}), "configurations: batch 1, cpu 1, gpuPercent 50 is given 2 times; keep one"),
    "no points": (points(), "spec.gpus[0].configurations: List should have at least 1 item"),
    "a model twice": (profile("spec.gpus", PROFILE["spec"]["gpus"] * 2), "spec: gpus: the model 'A100' is given 2 times; merge them"),
    "time zero": (point("latencyMs", 0), f"{POINT_AT}.latencyMs: Input should be greater than 0 (given: 0)"),
    "time below zero": (point("latencyMs", -5), f"{POINT_AT}.latencyMs: Input should be greater than 0 (given: -5)"),
    "time infinite": (point("latencyMs", float("inf")), f"{POINT_AT}.latencyMs: Input should be"),
    "p95 of zero": (point("p95Ms", 0), f"{POINT_AT}.p95Ms: Input should be greater than 0"),
    "p95 below the mean": (point("p95Ms", 99), f"{POINT_AT}.p95Ms: is below latencyMs, 100 ms; give the mean or median as latencyMs, and the 95th percentile of the same runs as p95Ms, or leave p95Ms out (given: 99)"),
    "share 0": (point("gpuPercent", 0), f"{POINT_AT}.gpuPercent: Input should be greater than or equal to 1 (given: 0)"),
    "share 101": (point("gpuPercent", 101), f"{POINT_AT}.gpuPercent: Input should be less than or equal to 100 (given: 101)"),
    "share a fraction": (point("gpuPercent", 0.5), f"{POINT_AT}.gpuPercent: Input should be a valid integer (given: 0.5); the ratio 0.5 is 50 percent"),
    "share in text": (point("gpuPercent", "50"), f"{POINT_AT}.gpuPercent: Input should be a valid integer (given: '50')"),
    "batch 0": (point("batch", 0), f"{POINT_AT}.batch: Input should be greater than or equal to 1"),
    "batch true": (point("batch", True), f"{POINT_AT}.batch: Input should be a valid integer (given: True)"),
    "batch 10^30": (point("batch", 10**30), f"{POINT_AT}.batch: "),
    "cpu 2^70": (point("cpu", 2**70), f"{POINT_AT}.cpu: "),
    "memory below zero": (point("memoryMib", -1), f"{POINT_AT}.memoryMib: Input should be greater than or equal to 1"),
    "sparse in text": (profile("spec.gpus.0.sparse", "yes"), "spec.gpus[0].sparse: Input should be a valid boolean (given: 'yes')"),
    "a cold start below zero": (profile("spec.coldStartMs", -1), "spec.coldStartMs: Input should be greater than or equal to 0"),
    "a p95 of starts below the median": ([WORKFLOW, changed(changed(PROFILE, "spec.coldStartMs", 500), "spec.coldStartP95Ms", 400)], "spec.coldStartP95Ms: needs a coldStartMs above 0 and no longer than 400 ms, not 500; give the median"),
    "a p95 of starts without a median": (profile("spec.coldStartP95Ms", 400), "spec.coldStartP95Ms: needs a coldStartMs above 0"),
    "another version": (workflow("apiVersion", "esg-scheduler.io/v2"), "documents.yaml: Workflow default/w: apiVersion: 'esg-scheduler.io/v2' is not served; use 'esg-scheduler.io/v1alpha1'"),
    "an unknown kind": (workflow("kind", "Workflows"), "kind: 'Workflows' is unknown; write Workflow"),
    "a kind in lower case": (workflow("kind", "workflow"), "kind: 'workflow' is unknown; write Workflow"),
    "a kind of its own": (workflow("kind", "Pipeline"), "kind: 'Pipeline' is unknown; it is one of Workflow, FunctionProfile, FunctionServer"),
    "no kind": (workflow("kind", None), "kind: is missing; it is one of Workflow, FunctionProfile, FunctionServer"),
    "another spelling of the group": (workflow("apiVersion", "esg-scheduler/v1alpha1"), "documents.yaml: Workflow default/w: apiVersion: 'esg-scheduler/v1alpha1' is not served; use 'esg-scheduler.io/v1alpha1'"),
    "a version without its group": (workflow("apiVersion", "v1alpha1"), "documents.yaml: Workflow default/w: apiVersion: 'v1alpha1' is not served; use 'esg-scheduler.io/v1alpha1'"),
    "a kind that is a list": (workflow("kind", ["Workflow"]), "kind: a list is unknown; it is one of"),
    "a document that is a list": ([[1], WORKFLOW, PROFILE], "documents.yaml: document 1: must be a mapping with apiVersion and kind, not a list"),
    "the same name twice in a file": ([WORKFLOW, WORKFLOW, PROFILE], "documents.yaml: Workflow default/w: metadata.name: is in documents.yaml too; keep one"),
    "a profile twice in a file": ([WORKFLOW, PROFILE, PROFILE], "documents.yaml: FunctionProfile f: metadata.name: is in documents.yaml too; keep one"),
}  # fmt: skip


def test_valid_documents_pass(tmp_path):
    """Valid documents are counted, and the status is 0."""
    assert check(tmp_path, [WORKFLOW, PROFILE]) == (
        0,
        "1 FunctionProfile, 1 Workflow: 0 errors, 0 warnings\n",
    )


def test_servers_and_what_the_gateway_reads(tmp_path):
    """A server, inputs by name and a reaction to late requests are valid."""
    document = changed(changed(WORKFLOW, "spec.stages", [SEVERAL[0], FED]), "spec.onLate", "drop")
    elsewhere = changed(SERVER, "metadata.namespace", "elsewhere")
    assert check(tmp_path, [document, PROFILE, SERVER, elsewhere]) == (
        0,
        "1 FunctionProfile, 2 FunctionServers, 1 Workflow: 0 errors, 0 warnings\n",
    )


def test_a_template(tmp_path):
    """A template may name its GPU container, and size everything but that container's vCPUs."""
    assert check(tmp_path, [WORKFLOW, PROFILE, of_template(SIDECAR)])[0] == 0


def test_the_samples_pass():
    """The shipped documents have neither errors nor warnings."""
    done = esg("check", REPOSITORY / "deploy" / "samples")
    assert (done.exit_code, done.output) == (
        0,
        "6 FunctionProfiles, 6 FunctionServers, 4 Workflows: 0 errors, 0 warnings\n",
    )


@pytest.mark.parametrize(("documents", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault(tmp_path, documents, message):
    """A fault has status 1 and one line with file, document, field, reason and value."""
    status, output = check(tmp_path, documents)
    assert status == 1
    lines = [LINE.sub("", line) for line in output.splitlines() if line.startswith("error: ")]
    assert [line for line in lines if message in line], output
    assert all(len(line) < 500 for line in output.splitlines())


@pytest.mark.parametrize(
    ("ports", "warnings"),
    [(7, 0), ([], 0), ([{"containerPort": 8001}], 0), ([{"containerPort": 8000}, "metrics"], 1)],
)
def test_a_port_that_no_container_declares(tmp_path, ports, warnings):
    """A template need not declare its ports; one that does and has others is likely wrong."""
    of_ports = of_template({"spec": {"containers": [{"name": "c", "ports": ports}]}})
    status, output = check(tmp_path, [WORKFLOW, PROFILE, of_ports])
    assert status == 0
    assert output.endswith(f"{warnings} warning{'s' * (warnings != 1)}\n")
    message = "s: spec.port: 8001 is no containerPort of the template (8000); correct one of them"
    assert (message in output) == bool(warnings)


def test_all_faults_are_listed_at_once(tmp_path):
    """An invalid document hides neither the faults of another one nor its own further ones."""
    wrong = changed(
        changed(PROFILE, "spec.gpus.0.configurations.0.batch", 0), "spec.coldStartMs", -1
    )
    status, output = check(tmp_path, [changed(WORKFLOW, "spec.slo.latencyMs", -1), wrong])
    assert status == 1
    assert output.splitlines()[-1] == "no document: 3 errors, 0 warnings"


def test_an_invalid_profile_has_no_follow_on_errors(tmp_path):
    """A stage and a server of a profile with a fault have one themselves only without it."""
    documents = [*point("batch", 0), SERVER]
    status, output = check(tmp_path, documents)
    assert status == 1
    assert "has no FunctionProfile" not in output
    assert output.splitlines()[-1] == "1 FunctionServer, 1 Workflow: 1 error, 0 warnings"


def test_keys_of_a_merge_may_stand_twice(tmp_path):
    """A mapping may replace what it takes over from another one."""
    text = yaml.safe_dump_all([WORKFLOW, PROFILE])
    text = text.replace(
        "metadata:\n  name: f\n", "x-base: &base {name: g}\nmetadata:\n  <<: *base\n  name: f\n"
    )
    assert "*base" in text
    assert "x-base: unknown field" in check(tmp_path, text)[1]


def test_a_name_in_two_files(tmp_path):
    """The second of two equal names is an error that names the file of the first."""
    check(tmp_path, [WORKFLOW, PROFILE], "first.yaml")
    status, output = check(tmp_path, [WORKFLOW], "second.yml")
    assert status == 1
    assert "error: second.yml:4: Workflow default/w: metadata.name: is in first.yaml too" in output


def test_the_same_name_in_two_namespaces(tmp_path):
    """The same name in two namespaces is valid."""
    elsewhere = changed(WORKFLOW, "metadata.namespace", "elsewhere")
    assert check(tmp_path, [WORKFLOW, elsewhere, PROFILE])[0] == 0


def test_an_slo_out_of_reach_is_an_error(tmp_path):
    """An SLO that no configuration meets, even without a margin, has status 1."""
    status, output = check(tmp_path, workflow("spec.slo.latencyMs", 99))
    assert (status, output.splitlines()[-1]) == (
        1,
        "1 FunctionProfile, 1 Workflow: 1 error, 0 warnings",
    )
    assert output.startswith(
        "error: documents.yaml:8: Workflow default/w: spec.slo.latencyMs: no configuration meets "
        "99 ms; the fastest takes 100 ms\n"
    )


def test_an_objective_out_of_reach_is_a_warning(tmp_path, monkeypatch):
    """The fastest configuration needs time for its margin; without a margin, its time alone."""
    assert "0 warnings" in check(tmp_path, workflow("spec.slo.latencyMs", 113))[1]
    output = check(tmp_path, workflow("spec.slo.latencyMs", 112))[1]
    assert output.startswith(
        "warning: documents.yaml:8: Workflow default/w: spec.slo.latencyMs: 112 ms are too few for "
        "an objective of 0.99: the fastest takes 100 ms, and its margin is 12.2 %\n"
    )
    monkeypatch.setenv("ESG_MARGIN_RATIO", "0")
    assert "0 warnings" in check(tmp_path, workflow("spec.slo.latencyMs", 100))[1]


def test_an_slo_that_is_mostly_margin_is_a_warning(tmp_path):
    """Its author sees what the margin takes, and what plans have left."""
    spread = [changed(WORKFLOW, "spec.slo.latencyMs", 2000), *point("p95Ms", 400)[1:]]
    status, output = check(tmp_path, spread)
    assert status == 0
    assert re.match(
        r"warning: documents\.yaml:8: Workflow default/w: spec\.slo\.latencyMs: the margin for an "
        r"objective of 0\.99 takes 9\d % of 2000 ms, because p95Ms is far above latencyMs in its "
        r"profiles; \d+ ms are planned with\. Measure again, or lower the objective\n",
        output,
    )


def test_a_fault_has_the_line_of_its_field(tmp_path):
    """In the second document, in an item of a List, and where a field is missing: of its parent."""
    text = yaml.safe_dump_all([WORKFLOW, changed(PROFILE, "spec.coldStartMs", -1)])
    [line] = [n for n, line in enumerate(text.splitlines(), 1) if "coldStartMs" in line]
    assert f"documents.yaml:{line}: FunctionProfile f: spec.coldStartMs" in check(tmp_path, text)[1]
    text = yaml.safe_dump({"kind": "List", "items": [PROFILE, WORKFLOW | {"spec": {}}]})
    [line] = [n for n, line in enumerate(text.splitlines(), 1) if "spec: {}" in line]
    assert f"documents.yaml:{line}: Workflow default/w: spec.slo: " in check(tmp_path, text)[1]
    assert "documents.yaml:2: the file: is not YAML" in check(tmp_path, "a: 1\nb: c: d\n")[1]


def test_a_fault_across_documents_has_a_line(tmp_path):
    """It is that of the field that names the other document, or of the last of equal names."""
    elsewhere = changed(WORKFLOW, "metadata.namespace", "elsewhere")
    again = changed(WORKFLOW, "spec.slo.latencyMs", 400)
    text = yaml.safe_dump({"kind": "List", "items": [elsewhere, WORKFLOW, SERVER, again]})
    lines = list(enumerate(text.splitlines(), 1))
    stages = [number for number, line in lines if line.strip() == "- function: f"]
    [server_line] = [number for number, line in lines if line.strip() == "function: f"]
    name_line = max(number for number, line in lines if line.strip() == "name: w")
    output = check(tmp_path, text)[1]
    for line, fault in (
        (stages[0], "Workflow elsewhere/w: spec.stages[0].function"),
        (stages[2], "Workflow default/w: spec.stages[0].function"),
        (name_line, "Workflow default/w: metadata.name"),
        (server_line, "FunctionServer default/s: spec.function"),
    ):
        assert f"error: documents.yaml:{line}: {fault}: " in output


def test_a_misspelt_field_is_one_fault(tmp_path):
    """The field that is missing for it has none of its own."""
    spec = {"slo": {"latency": 400}, "stages": WORKFLOW["spec"]["stages"]}
    status, output = check(tmp_path, [WORKFLOW | {"spec": spec}, PROFILE])
    assert status == 1
    assert "spec.slo.latency: unknown field; write latencyMs (given: 400)" in output
    assert output.splitlines()[-1] == "1 FunctionProfile: 1 error, 0 warnings"


def test_percentiles_of_some_configurations_only(tmp_path):
    """A profile without all its percentiles is a warning that names the GPU profile."""
    measured = {"p95Ms": 105}
    assert "0 warnings" in check(tmp_path, points(measured, {"batch": 2} | measured))[1]
    status, output = check(tmp_path, points(measured, {"batch": 2}))
    assert status == 0
    assert output.startswith(
        "warning: documents.yaml:19: FunctionProfile f: spec.gpus[0].configurations: 1 of 2 have no "
        "p95Ms; they count with the largest ratio of p95Ms to latencyMs of the function. Measure "
        "all or none\n"
    )


def test_a_sparse_profile_may_have_holes(tmp_path):
    """With ``sparse``, missing points are valid."""
    documents = points({}, {"batch": 2, "cpu": 2})
    documents[1]["spec"]["gpus"][0]["sparse"] = True
    assert check(tmp_path, documents)[0] == 0


def test_other_documents_are_skipped(tmp_path):
    """A folder may contain a whole application; the items of a List are checked."""
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": "anything"}
    whole = {"apiVersion": "v1", "kind": "List", "items": [WORKFLOW, PROFILE, deployment]}
    assert check(tmp_path, [deployment, whole, None]) == (
        0,
        "1 FunctionProfile, 1 Workflow: 0 errors, 0 warnings\n",
    )


UNREADABLE = {
    "not YAML": ("a: [1", "is not YAML: while parsing a flow sequence"),
    "tabs": ("a:\n\tb: 1", "is not YAML: a tab indents the line; use spaces"),
    "binary": (bytes(range(256)), "cannot be read: "),
    "UTF-16": ("kind: Workflow".encode("utf-16"), "cannot be read: "),
    "NUL bytes": ("kind: \0", "is not YAML: unacceptable character"),
    "a Python object": ("!!python/object/apply:os.system [true]", "is not YAML: could not determine a constructor"),
    "no such day": ("day: 2026-99-99", "is not YAML: a value does not match its type: month must be in 1..12"),
    "an invalid number": ("a: !!int many", "is not YAML: a value does not match its type"),
    "an invalid boolean": ("a: !!bool many", "is not YAML: a value does not match its type"),
    "an invalid time": ("a: !!timestamp many", "is not YAML: a value does not match its type"),
    "a list for a key": ("[a]: b", "is not YAML: while constructing a mapping"),
    "a key twice": ("kind: Workflow\na: {b: 1,\n  b: 2}\n", "is not YAML: key 'b' occurs twice in a mapping; keep one"),
    "an alias of nothing": ("a: *b", "is not YAML: "),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_read(tmp_path, content, message):
    """The file is named with the reason; the valid file next to it is still read."""
    check(tmp_path, [WORKFLOW, PROFILE], "sound.yaml")
    status, output = check(tmp_path, content, "bad.yaml")
    assert status == 1
    assert f"error: bad.yaml: the file: {message}" in LINE.sub("", output)
    assert output.splitlines()[-1] == "1 FunctionProfile, 1 Workflow: 1 error, 0 warnings"


def test_aliases_are_valid(tmp_path):
    """Anchors and aliases are resolved."""
    text = yaml.safe_dump_all([WORKFLOW, PROFILE])
    text = text.replace("name: f\n", "name: &name f\n  generateName: *name\n")
    assert "*name" in text
    assert check(tmp_path, text)[0] == 0


@pytest.mark.parametrize(
    "content", ["apiVersion: apps/v1\nkind: Deployment\n", "", "---\n---\n", "# nothing\n"]
)
def test_a_file_without_documents(tmp_path, content):
    """A file without documents is an error with a reason."""
    status, output = check(tmp_path, content)
    assert status == 1
    assert (
        "no Workflow, FunctionProfile or FunctionServer of esg-scheduler.io; name files or folders that have"
        in output
    )
    assert output.endswith("no document: 1 error, 0 warnings\n")


def test_an_empty_folder(tmp_path):
    """The error for an empty folder names the expected file types."""
    done = esg("check", tmp_path)
    assert done.exit_code == 1
    assert f"{tmp_path}: the folder: has no file that ends in .json, .yaml, .yml" in done.output


def test_a_path_that_is_not_there(tmp_path):
    """The error names the missing path."""
    done = esg("check", tmp_path / "nowhere")
    assert done.exit_code == 1
    assert "nowhere: the file: cannot be read: No such file or directory" in done.output


def test_a_folder_in_a_folder(tmp_path):
    """Folders are read recursively, and other files are skipped."""
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("a: [", encoding="utf-8")
    check(tmp_path / "deep" / "deeper", [PROFILE], "profile.json")
    assert check(tmp_path, [WORKFLOW])[0] == 0


def test_a_document_with_a_status_is_valid(tmp_path):
    """The output of `kubectl get -o yaml` can be checked: a status is written by programs."""
    condition = {"type": "Ready", "status": "True", "reason": "Served", "message": ""}
    documents = [
        {**document, "status": {"conditions": [condition], "replicas": 2}}
        for document in (WORKFLOW, PROFILE, SERVER)
    ]
    file = tmp_path / "documents.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    assert esg("check", str(file)).exit_code == 0
