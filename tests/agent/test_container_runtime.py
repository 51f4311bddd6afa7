"""The container runtime's configuration and CDI devices, from the files of a host."""

import json

import pytest

from scheduler.agent.dra.container_runtime import cdi_devices, container_runtime

K3S = "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
VERSION_2 = """
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
VERSION_3 = """
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
"""


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"etc/containerd/config.toml": "["}, None),
        ({"etc/containerd/config.toml": VERSION_2}, ("containerd", {"runc"}, "runc")),
        (
            {
                "etc/containerd/config.toml": VERSION_2,
                "etc/containerd/conf.d/99-nvidia.toml": VERSION_3,
            },
            ("containerd", {"runc", "nvidia"}, "nvidia"),
        ),
        (
            {
                "etc/containerd/config.toml": 'version = 3\nimports = ["conf.d/more.toml"]',
                "etc/containerd/conf.d/more.toml": 'imports = ["", "../*.d/*.toml"]\nversion = 3',
                "etc/containerd/conf.d/nvidia.toml": VERSION_3,
            },
            ("containerd", {"nvidia"}, "nvidia"),
        ),
        ({K3S: VERSION_3}, ("containerd", {"nvidia"}, "nvidia")),
        (
            {
                "etc/crio/crio.conf": '[crio.runtime]\ndefault_runtime = "crun"\n',
                "etc/crio/crio.conf.d/nvidia.conf": "[crio.runtime.runtimes.nvidia]\n",
            },
            ("CRI-O", {"crun", "nvidia"}, "crun"),
        ),
    ],
    ids=["none", "broken", "version 2", "imported", "imported from there", "k3s", "CRI-O"],
)
def test_handlers_and_the_default(tmp_path, files, expected):
    """Every form of the configuration that NVIDIA's toolkit writes."""
    for name, text in files.items():
        write(tmp_path, name, text)
    runtime = container_runtime(tmp_path)
    assert (runtime and (runtime.name, runtime.handlers, runtime.default)) == expected


def test_cdi_devices_of_all_folders(tmp_path):
    """Several files may describe one kind; files of other forms are left alone."""
    for folder, name in (("etc/cdi", "0"), ("var/run/cdi", "GPU-1")):
        spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": name}]}
        write(tmp_path, f"{folder}/nvidia.yaml", json.dumps(spec))
    write(tmp_path, "etc/cdi/broken.json", "{")
    write(tmp_path, "etc/cdi/list.yaml", "[]")
    write(tmp_path, "etc/cdi/notes.txt", "kind: other")
    write(tmp_path, "var/run/cdi/empty.json", '{"kind": "management.nvidia.com/gpu"}')
    assert cdi_devices(tmp_path) == {
        "nvidia.com/gpu": {"0", "GPU-1"},
        "management.nvidia.com/gpu": set(),
    }
    assert cdi_devices(tmp_path / "absent") == {}
