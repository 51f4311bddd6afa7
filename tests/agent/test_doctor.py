"""`esg doctor`: what a node has, what is missing, and what to do about it."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.agent.doctor import findings
from scheduler.agent.dra.kubelet_messages import plugin_sockets
from scheduler.agent.gpus.nvml import NvmlError
from scheduler.agent.mps.daemon_state import DaemonState, write_state
from scheduler.agent.pods.claimants import NodeUsers
from scheduler.agent.settings import AgentSettings
from tests.agent.factories import device
from tests.agent.fakes import Clock

ESG = str(Path(sys.executable).with_name("esg"))
NVIDIA_DEFAULT = """
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "nvidia"
"""
NVIDIA_HANDLER = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
"""


class ExaminedNode:
    """A node whose files are below a folder; a complete one at first."""

    def __init__(self, folder, monkeypatch):
        self.root = folder / "root"
        self.containerd = self.root / "etc/containerd/config.toml"
        self.containerd.parent.mkdir(parents=True)
        self.containerd.write_text(NVIDIA_DEFAULT)
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"):
            (self.programs / name).write_text("")
            (self.programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(self.programs))
        self.clock = Clock()
        self.settings = AgentSettings(mps_root="/run/mps").model_copy(
            update={"mps_root": str(folder / "mps")}
        )
        write_state(folder / "mps" / "GPU-0", DaemonState("ready"), clock=self.clock)
        self.node = {
            "metadata": {"name": "n", "labels": {"esg-scheduler.io/shared": "true"}},
            "status": {"allocatable": {}},
        }
        self.gpus = [device(0, exclusive=True)]
        self.pods = ()

    def examine(self):
        """Map subjects to findings."""
        users = NodeUsers(self.node, {}, self.pods)
        results = findings(
            self.settings, users, root=self.root, devices=lambda: self.gpus, clock=self.clock
        )
        return {result.subject: result for result in results}


@pytest.fixture
def examined(tmp_path, monkeypatch):
    """Return a node that has everything."""
    return ExaminedNode(tmp_path, monkeypatch)


def test_a_complete_node_has_nothing_missing(examined):
    """Every finding is ok and asks for nothing."""
    for finding in examined.examine().values():
        assert (finding.verdict, finding.remedy) == ("ok", ""), finding


def test_a_missing_driver(tmp_path, examined):
    """The message is NVML's; nothing is said about GPUs."""

    class Error:
        value = 12

    def no_driver():
        raise NvmlError(Error())

    results = list(findings(examined.settings, None, root=tmp_path, devices=no_driver))
    assert results[0].verdict == "missing"
    assert "libnvidia-ml" in results[0].text
    assert not [result for result in results if result.subject.startswith("GPU 0")]


def test_missing_programs_of_mps(examined):
    """The one that is missing is named."""
    (examined.programs / "nvidia-cuda-mps-server").unlink()
    programs = examined.examine()["MPS programs"]
    assert programs.verdict == "missing"
    assert "nvidia-cuda-mps-server" in programs.text


def test_a_runtime_that_is_not_the_default_needs_its_class(examined):
    """From containerd's configuration, or from what the kubelet reports."""
    examined.containerd.write_text(NVIDIA_HANDLER)
    assert "runtime_class_name" in examined.examine()["GPUs into containers"].remedy
    examined.containerd.write_text("")
    examined.node["status"]["runtimeHandlers"] = [{"name": ""}, {"name": "nvidia"}]
    assert "runtime_class_name" in examined.examine()["GPUs into containers"].remedy


def test_cdi_devices_without_a_runtime_need_nri(examined):
    """The kind that Bindings write is named."""
    examined.containerd.write_text("")
    spec = examined.root / "var/run/cdi/nvidia.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": "GPU-0"}]}))
    assert "cdi_kind: nvidia.com/gpu" in examined.examine()["GPUs into containers"].remedy


def test_no_way_for_gpus_into_containers(examined):
    """A runtime without NVIDIA's handler lacks the toolkit; an unreadable one says nothing."""
    examined.containerd.write_text("")
    delivery = examined.examine()["GPUs into containers"]
    assert (delivery.verdict, "container toolkit" in delivery.remedy) == ("missing", True)
    examined.containerd.unlink()
    assert examined.examine()["GPUs into containers"].verdict == "unknown"


@pytest.fixture
def claiming(examined):
    """Return a node whose agent is the kubelet's plugin for resource claims."""
    kubelet_root = "/var/lib/kubelet"
    examined.settings = examined.settings.model_copy(update={"kubelet_root": kubelet_root})
    examined.sockets = [
        examined.root / path.relative_to("/") for path in plugin_sockets(kubelet_root)
    ]
    for path in examined.sockets:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFSOCK | 0o600)
    examined.node["status"]["nodeInfo"] = {
        "kubeletVersion": "v1.34.4",
        "containerRuntimeVersion": "containerd://2.1.4",
    }
    return examined


def test_a_node_that_can_prepare_claims(claiming):
    """Kubelet and container runtime are named; without claims there is no such line."""
    finding = claiming.examine()["resource claims"]
    assert (finding.verdict, finding.remedy) == ("ok", "")
    assert "kubelet v1.34.4, containerd://2.1.4" in finding.text
    claiming.settings = claiming.settings.model_copy(update={"kubelet_root": ""})
    assert "resource claims" not in claiming.examine()


@pytest.mark.parametrize(
    ("field", "version", "text"),
    [
        ("kubeletVersion", "v1.33.9", "claims need 1.34"),
        ("containerRuntimeVersion", "containerd://1.6.20", "claims need 1.7"),
        ("containerRuntimeVersion", "containerd://1.7.24", "CDI is off"),
    ],
)
def test_a_node_too_old_for_claims(claiming, field, version, text):
    """With containerd 1.7, `enable_cdi` in its configuration decides."""
    claiming.node["status"]["nodeInfo"][field] = version
    finding = claiming.examine()["resource claims"]
    assert (finding.verdict, text in finding.text) == ("missing", True)
    claiming.containerd.write_text(
        '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n' + NVIDIA_DEFAULT
    )
    assert (claiming.examine()["resource claims"].verdict == "ok") == ("CDI" in text)


def test_a_runtime_without_cdi(claiming):
    """Its configuration counts whatever its version is."""
    claiming.containerd.write_text('[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n')
    assert "enable_cdi = true" in claiming.examine()["resource claims"].remedy


def test_an_absent_plugin(claiming):
    """The missing socket is named, and the value that may be wrong."""
    claiming.sockets[1].unlink()
    finding = claiming.examine()["resource claims"]
    assert "plugins_registry/esg-scheduler.io-reg.sock" in finding.text
    assert "dra.kubeletRoot" in finding.remedy


def test_a_node_that_did_not_opt_in(examined):
    """The command that labels it is named."""
    del examined.node["metadata"]["labels"]
    opted = examined.examine()["node opted in"]
    assert (opted.verdict, "kubectl label" in opted.remedy) == ("missing", True)


def test_other_claimants(examined):
    """A device plugin, or a pod with a whole GPU."""
    examined.node["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    assert "nvidia.com/gpu: 8" in examined.examine()["GPU 0"].text
    examined.node["status"]["allocatable"] = {}
    examined.pods = ("ml/training",)
    assert "ml/training" in examined.examine()["GPU 0"].text


def test_an_unusable_gpu(examined):
    """MIG, and a daemon that is not ready."""
    examined.gpus = [device(0, mig=True), device(1)]
    results = examined.examine()
    assert "MIG" in results["GPU 0"].text
    assert results["GPU 1"].verdict == "missing"
    assert "container `mps`" in results["GPU 1"].remedy


@pytest.mark.slow
def test_the_command_prints_a_table_or_json(gpus, tmp_path):
    """Its status is 1, because this machine has neither programs nor daemons of MPS."""
    environment = {**os.environ, **gpus.environment, "ESG_AGENT_MPS_ROOT": "/run/none"}
    environment.pop("NODE_NAME", None)
    options = {"env": environment, "capture_output": True, "text": True}
    table = subprocess.run([ESG, "doctor"], check=False, **options)
    assert table.returncode == 1, table.stderr
    assert "8 GPUs: NVIDIA A100-SXM4-80GB" in table.stdout
    assert "-> " in table.stdout
    answer = subprocess.run([ESG, "doctor", "--json"], check=False, **options)
    listed = json.loads(answer.stdout)
    assert {"subject", "verdict", "text", "remedy"} == listed[0].keys()
    assert sum(finding["subject"].startswith("GPU ") for finding in listed) == 8
