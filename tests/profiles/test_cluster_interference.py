"""``esg profiles measure -f --beside``: a pod of each function on one GPU of a cluster."""

import json
import signal
import subprocess

import pytest
import yaml

from tests.command_line import esg
from tests.profiles.cluster import ESG, SLOWDOWN, played_cluster
from tests.testbed.api import wait_until
from workbench.profiles.cluster_interference import pair_percents

pytestmark = pytest.mark.slow
RUN_MS = {"encoder": 60.0, "segment": 120.0}
OPTIONS = (
    "--shares", "20,30", "--cpus", 1, "--batches", 2, "--memory-mib", 900, "--all",
    "--scheduler-name", "esg-scheduler", "--runs", 10, "--runs-max", 10, "--warm-up", 1,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _loopback(loopback_http):
    """Played servers are on the loopback."""


def command(cluster, folder, *options, functions=RUN_MS):
    """Return the words of a measurement of the encoder."""
    file = folder / "servers.yaml"
    servers = [
        {
            "apiVersion": "esg-scheduler.io/v1alpha1",
            "kind": "FunctionServer",
            "metadata": {"name": function, "namespace": "default"},
            "spec": {
                "function": function,
                "model": "played",
                "protocol": "http-binary",
                "port": cluster.port,
                "template": {"spec": {"containers": [{"name": "server", "image": "none"}]}},
            },
        }
        for function in functions
    ]
    file.write_text(yaml.safe_dump_all(servers), encoding="utf-8")
    common = ("-f", file, "--kubeconfig", cluster.kubeconfig, *OPTIONS)
    return "profiles", "measure", *common, *options


def test_the_slowdown_is_that_beside_a_pod_of_the_other_function(tmp_path):
    """Both are on one GPU with their shares; the table of interference is in profile and JSON."""
    with played_cluster(tmp_path, RUN_MS) as cluster:
        out = tmp_path / "profile.yaml"
        beside = ("--beside", "segment", "--beside-percent", 60)
        done = esg(*command(cluster, tmp_path, *beside, "--json", "-o", out))
        assert done.exit_code == 0, done.output
        [gpu] = cluster.gpu_uuids
        assert cluster.created == [("encoder", gpu)] * 3 + [("segment", gpu)]
        assert not [p for p in cluster.measured_pods if "deletionTimestamp" not in p["metadata"]]
    interference = json.loads(done.stdout)["interference"]
    ratio = (SLOWDOWN - 1) * 100 / 60  # beside the whole GPU
    assert interference == {"encoder": {"segment": pytest.approx(ratio, rel=0.5)}}
    assert "batch 2 beside segment with 60 %: median" in done.stderr
    text = out.read_text(encoding="utf-8")
    assert f"interference: {{encoder: {{segment: {interference['encoder']['segment']}}}}}" in text
    assert [row["gpuPercent"] for row in yaml.safe_load(text)["spec"]["gpus"][0]["configurations"]]


def test_pods_on_other_gpus_are_kept_until_two_share_one(tmp_path):
    """A GPU with room for one of them takes the first; a second one goes to the other GPU."""
    with played_cluster(tmp_path, RUN_MS, gpus=2, held_percent=60) as cluster:
        beside = ("--shares", 30, "--beside", "segment", "--beside-percent", 60)
        done = esg(*command(cluster, tmp_path, *beside))
        assert done.exit_code == 0, done.output
        free, tight = cluster.gpu_uuids
        pair = [("encoder", tight), ("segment", free), ("encoder", free)]
        assert cluster.created == [("encoder", tight), *pair]
        assert "another one is created" in done.stderr
        assert not [p for p in cluster.measured_pods if "deletionTimestamp" not in p["metadata"]]


def test_ctrl_c_deletes_both_pods(tmp_path):
    """They go with the command, which exits as after any Ctrl-C."""
    with played_cluster(tmp_path, RUN_MS) as cluster:
        words = command(cluster, tmp_path, "--shares", 30, "--beside", "segment")
        many = ("--runs", 10_000)  # which do not end before
        with subprocess.Popen([*map(str, (ESG, *words, *many))], stderr=subprocess.PIPE) as process:
            wait_until(lambda: "segment" in dict(cluster.created), what="both pods run")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=300)
        assert process.returncode == 130
        assert not [p for p in cluster.measured_pods if "deletionTimestamp" not in p["metadata"]]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (("--beside", "ocr"), 1, "one of function 'ocr' (--beside)"),
        (("--beside", "segment", "--beside-percent", 90), 2, "at most 10 %"),
        ((), 1, "must have one FunctionServer with a template"),
    ],
)
def test_what_cannot_be_measured(tmp_path, options, status, text):
    """It is refused before any pod is created."""

    class NoCluster:
        port, kubeconfig = 1, tmp_path / "none"

    done = esg(*command(NoCluster, tmp_path, *options))
    assert done.exit_code == status, done.output
    assert text in " ".join(done.stderr.split())


def test_the_largest_shares_that_fit_on_one_gpu():
    """Without a share of its own, the neighbour has that of the measured pod."""
    assert pair_percents([14, 28, 56], None) == (28, 28)
    assert pair_percents([14, 28, 56], 40) == (56, 40)
    assert pair_percents([56], None) is None
