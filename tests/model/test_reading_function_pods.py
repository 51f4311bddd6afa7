"""Function pods and their grants are parsed from raw JSON."""

# ruff: noqa: E501 - a row of a table is one line

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.documents import GridPoint
from scheduler.model.grant import Grant, cdi_annotations, grant_annotations, grant_of
from scheduler.model.names import CONTAINER_MPS_CHECK
from scheduler.model.pod import function_pod, has_ended, is_function_pod
from scheduler.model.pod_fields import PodError, timestamp_s
from scheduler.model.pod_resources import requested_cpu_milli, requested_gpu_percent
from tests.extender.factories import GROUP, pod


def containers(*cpus):
    """Create containers that request these vCPUs; None: no request."""
    return [
        {"name": f"c{i}", "resources": {} if cpu is None else {"requests": {"cpu": cpu}}}
        for i, cpu in enumerate(cpus)
    ]


def test_every_field_is_parsed():
    """Labels, annotations, requests and priority of a pod are parsed."""
    raw = pod(
        workflow="w", stage="s", request="r", priority=-5, name="n", uid="u",
        annotations={
            "arrival": "2026-01-02T03:04:05.25Z", "deadline": "2026-01-02T05:04:06.25+02:00",
            "queued": "3", "rate": "2.5e1", "container": "c1",
            "configuration": '{"gpuPercent": 28, "batch": 8, "cpu": 2}',
        },
    )  # fmt: skip
    raw["spec"]["containers"] = containers("500m", "1500m", None)
    raw["spec"]["containers"][1]["resources"]["limits"] = {f"{GROUP}/gpu-percent": "25"}
    read = function_pod(raw)
    assert (read.namespace, read.name, read.uid) == ("default", "n", "u")
    assert (read.workflow, read.stage, read.request) == ("w", "s", "r")
    assert (read.container, read.queued, read.rate_rps, read.priority) == (1, 3, 25.0, -5)
    assert read.configuration == GridPoint(batch=8, cpu=2, gpu_percent=28)
    assert read.arrival_s == 1_767_323_045.25
    assert read.deadline_s == read.arrival_s + 1
    assert (read.cpu_ceiling_milli, read.other_containers_cpu_milli, read.gpu_percent_ceiling) == (
        1500,
        500,
        25,
    )


def test_a_bare_function():
    """A label alone is a workflow of one stage, on the first container, without a ceiling."""
    read = function_pod(pod("f"))
    assert (read.workflow, read.stage, read.container) == (None, "f", 0)
    unset = (
        read.arrival_s,
        read.deadline_s,
        read.queued,
        read.rate_rps,
        read.request,
        read.configuration,
    )
    assert {None} == {*unset, read.cpu_ceiling_milli, read.gpu_percent_ceiling}


def test_a_pod_without_containers():
    """A pod without containers, which the API rejects, is parsed without an error."""
    raw = pod("f") | {"spec": {"containers": None}}
    assert (function_pod(raw).container, function_pod(raw).other_containers_cpu_milli) == (0, 0)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, False),
        ({"app": "web"}, False),
        ({f"{GROUP}/stage": "s"}, False),
        ({f"{GROUP}/function": "f"}, True),
        ({f"{GROUP}/workflow": ""}, True),
        (None, False),
    ],
)
def test_the_labels_of_a_function_pod(labels, expected):
    """A pod with a workflow or a function is a function pod; one with a stage alone is not."""
    assert expected is is_function_pod({"metadata": {"labels": labels}})


@pytest.mark.parametrize(
    ("together", "init", "expected"),
    [
        (("1", "500m", None), (), 1500),
        (("1",), ("2",), 2000),
        (("1",), ("500m", "700m"), 1000),
        ((), (), 0),
        (("x", "1"), (), 1000),
        (("9e15",) * 5, (), 10**12),
    ],
)
def test_requested_vcpus(together, init, expected):
    """The sum of the containers or the largest init container counts, within a machine word."""
    spec = {"containers": containers(*together), "initContainers": containers(*init)}
    assert expected == requested_cpu_milli({"spec": spec})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": ["1"], "sidecars": ["500m"]}, 1500),
        ({"containers": ["1"], "sidecars": ["500m"], "init": ["2"]}, 2500),
        ({"containers": ["4"], "sidecars": ["500m"], "init": ["2"]}, 4500),
        ({"containers": ["1"], "init": ["300m"], "sidecars": ["3"], "init_first": True}, 4000),
        ({"containers": ["1"], "overhead": "250m"}, 1250),
        ({"containers": ["1", "2"], "pod": "5"}, 5000),
        ({"containers": ["1", "2"], "pod": "5", "overhead": "250m"}, 5250),
    ],
)
def test_sidecars_pods_and_overhead_count(spec, expected):
    """The vCPUs are those of kube-scheduler's sum (KEP-753, KEP-2837)."""
    init = containers(*spec.get("init", ()))
    sidecars = [c | {"restartPolicy": "Always"} for c in containers(*spec.get("sidecars", ()))]
    pod_spec = {
        "containers": containers(*spec["containers"]),
        "initContainers": init + sidecars if spec.get("init_first") else sidecars + init,
    }
    if "overhead" in spec:
        pod_spec["overhead"] = {"cpu": spec["overhead"]}
    if "pod" in spec:
        pod_spec["resources"] = {"requests": {"cpu": spec["pod"]}}
    assert expected == requested_cpu_milli({"spec": pod_spec})


@pytest.mark.parametrize(
    ("together", "init", "expected"),
    [
        (("42",), (), 42),
        (("14", None, "30"), ("x", "20"), 44),
        (("14",), ("60",), 60),
        ((), (), 0),
        (("9e15",), (), 10**6),
    ],
)
def test_requested_gpu_percent(together, init, expected):
    """All containers count, as for any extended resource of Kubernetes, up to a limit."""

    def requesting(percents):
        return [
            {"resources": {"requests": {f"{GROUP}/gpu-percent": percent} if percent else {}}}
            for percent in percents
        ]

    spec = {"containers": requesting(together), "initContainers": requesting(init)}
    assert expected == requested_gpu_percent({"spec": spec})


@pytest.mark.parametrize(
    ("deadline_s", "arrival_s", "slo_ms", "expected"),
    [
        (110.0, None, None, 10_000.0),
        (110.0, 90.0, 500.0, 10_000.0),
        (None, 99.0, 1500.0, 500.0),
        (None, 90.0, 1500.0, -8500.0),
        (None, 90.0, None, None),
        (None, None, 1500.0, None),
    ],
)
def test_slack(deadline_s, arrival_s, slo_ms, expected):
    """The deadline counts first, then arrival plus SLO; without both the slack is unknown."""
    read = dataclasses.replace(function_pod(pod("f")), deadline_s=deadline_s, arrival_s=arrival_s)
    assert expected == read.slack_ms(slo_ms, now_s=100.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("1970-01-01t00:00:01z", 1.0),
        ("1970-01-01 00:00:01.5Z", 1.5),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01T00:00:00.123456789Z", 0.123456),
    ],
)
def test_times(text, expected):
    """RFC 3339 times are parsed with any zone, to the microsecond."""
    assert expected == timestamp_s(text)


@given(st.text(max_size=40) | st.none() | st.integers() | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", fullmatch=True))  # fmt: skip
def test_any_text_is_a_time_or_a_value_error(text):
    """Every text gives a time or a ValueError, including the first and last day of the calendar."""
    try:
        read = timestamp_s(text)
    except ValueError:
        return
    assert -62_135_700_000 < read < 253_402_400_000


@given(
    st.text("ABCGPU-0123456789", min_size=1),
    st.integers(1, 100),
    st.integers(1, 999_999_999),
    st.integers(1, 1_000_000),
    st.dictionaries(st.text("abc_", min_size=1), st.integers(-(2**53), 2**53) | st.none()),
)
def test_a_grant_round_trips_through_its_annotations(gpu, percent, memory_mib, batch, plan):
    """The parsed grant equals the grant of the Binding."""
    grant = Grant(gpu, percent, memory_mib, batch, plan)
    assert grant == grant_of({"metadata": {"annotations": grant_annotations(grant)}})


@pytest.mark.parametrize(
    ("annotations", "init", "expected"),
    [({}, [], ["main"]), ({f"{GROUP}/container": "side"}, [{"name": "setup"}], ["side"]), ({}, [{"name": CONTAINER_MPS_CHECK}], ["main", CONTAINER_MPS_CHECK])],
)  # fmt: skip
def test_the_gpu_as_a_cdi_device(annotations, init, expected):
    """The GPU's container and the check of its limits get the device, and no other container."""
    labels = {f"{GROUP}/function": "f"}
    spec = {"containers": [{"name": "main"}, {"name": "side"}], "initContainers": init}
    raw = {"metadata": {"name": "p", "labels": labels, "annotations": annotations}, "spec": spec}
    grant = Grant("GPU-0", 10, 100, 1, {})
    assert cdi_annotations(function_pod(raw), grant, "nvidia.com/gpu") == {
        f"nvidia.cdi.k8s.io/container.{name}": "nvidia.com/gpu=GPU-0" for name in expected
    }
    assert cdi_annotations(function_pod(raw), grant, "") == {}


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": {"annotations": None}}])
def test_no_grant(raw):
    """A pod without the annotation has no grant."""
    assert grant_of(raw) is None


@pytest.mark.parametrize(
    ("plan", "cpu"),
    [('{"cpu": 4}', 4), ('{"cpu": 1024}', 1024), ('{"cpu": 1025}', 0), ('{"cpu": -1}', 0), ('{"cpu": true}', 0), ('{"cpu": 1.5}', 0), ('{"cpu": "4"}', 0), ("[4]", 0), ("NaN", 0), ("[" * 100_000, 0), ('"\\ud800"', 0), ("", 0)],
    ids=lambda text: str(text)[:16],
)  # fmt: skip
def test_the_vcpus_of_a_grant(plan, cpu):
    """VCPUs of a valid plan are counted; those of an invalid one are 0."""
    annotations = grant_annotations(Grant("GPU-0", 10, 100, 1, {})) | {f"{GROUP}/plan": plan}
    grant = grant_of({"metadata": {"annotations": annotations}})
    assert grant is not None
    assert cpu == grant.cpu


@pytest.mark.parametrize("key", ["gpu-memory", "gpu-percent", "batch"])
def test_an_incomplete_grant(key):
    """A grant without one of its annotations is an error that names it."""
    annotations = grant_annotations(Grant("GPU-0", 10, 100, 1, {}))
    del annotations[f"{GROUP}/{key}"]
    with pytest.raises(PodError, match=f"annotation {GROUP}/{key}"):
        grant_of({"metadata": {"annotations": annotations}})


@pytest.mark.parametrize(
    ("status", "expected"),
    [({"phase": "Succeeded"}, True), ({"phase": "Failed"}, True), ({"phase": "Running"}, False), ({"phase": None}, False), (None, False)],
)  # fmt: skip
def test_when_a_pod_has_ended(status, expected):
    """The phase decides; a terminating pod has not ended."""
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert expected is has_ended({"metadata": metadata, "status": status})
