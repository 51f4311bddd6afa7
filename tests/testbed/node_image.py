"""Node image of kind, built from published Go modules and Debian packages, without a registry.

debootstrap makes the base. kind's Go module has the files of its own base image (entrypoint, units
of systemd, containerd's configuration); they are read from Go's module cache. The binaries are
those of the test bed. Docker keeps the result under a tag with a hash of all inputs.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.testbed import binaries, images, kubernetes_release
from tests.testbed.build_steps import BuildFailedError, run, say, stored
from tests.testbed.docker import docker
from tests.testbed.image_archive import write_image

REPOSITORY = "testbed.local/kind-node"
_BASE = f"{REPOSITORY}:base"
INSTALL = Path(__file__).with_name("node_image.sh")
_PACKAGES = (
    "ca-certificates,conntrack,containernetworking-plugins,dbus,ethtool,iproute2,iptables,jq,kmod"
    ",mount,procps,runc,systemd,util-linux"
)
_BINARIES = {
    "usr/bin": ("kubeadm", "kubectl", "kubelet"),
    "usr/local/bin": ("containerd", "containerd-shim-runc-v2", "ctr"),
}
PROGRAMS = (*binaries.KUBERNETES, *_BINARIES["usr/local/bin"], "coredns", "etcd")
_IPTABLES = tuple(f"{name}{suffix}" for name in ("iptables", "ip6tables")
                  for suffix in ("", "-restore", "-save"))  # fmt: skip
_SCRIPTS = ("kind/bin", "usr/local/bin")
_CONTAINER = "esg-testbed-node-image"


def base_archive() -> Path:
    """Return the root file system of a node without Kubernetes; build it unless it is stored.

    Raises:
        BuildFailedError: debootstrap failed.
    """
    digest = hashlib.sha256(f"{images.SUITE} {_PACKAGES}".encode()).hexdigest()[:16]
    archive = images.folder() / f"node-base-{digest}.tar"
    return stored(archive, kind="node-base", build=_build_base)


def _build_base(archive: Path) -> None:
    say("building the base of kind's node image with debootstrap")
    with tempfile.TemporaryDirectory(prefix="esg-node-base-") as scratch:
        root = Path(scratch) / "root"
        images.debian_root(root, packages=_PACKAGES)
        run(["tar", "--create", f"--directory={root}", f"--file={archive}", "."])


def node_image() -> str:
    """Return the name of the image; build it unless Docker has it.

    Raises:
        GoMissingError, BuildFailedError: a build step failed; see `binaries`.
    """
    programs = kubernetes_release.build(PROGRAMS)
    base, files = base_archive(), kind_files()
    name = f"{REPOSITORY}:{_digest(base, programs)}"
    if docker("images", "--quiet", name):
        return name
    say(f"building {name}")
    with tempfile.TemporaryDirectory(prefix="esg-node-image-") as scratch:
        stage = Path(scratch)
        _stage_files(stage / "files", files, programs)
        _stage_images(stage / "images", stage / "files", programs)
        shutil.copy(INSTALL, stage)
        docker("import", str(base), _BASE)
        command = (_BASE, "/bin/sh", f"/stage/{INSTALL.name}")
        volume = f"--volume={stage}:/stage:ro"
        try:
            # systemd ends on this signal; `docker commit` keeps it, but does not change it.
            options = ("--privileged", "--stop-signal=SIGRTMIN+3", f"--name={_CONTAINER}", volume)
            docker("run", *options, *command)
            changes = (
                'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]',
                "ENV container=docker",
            )
            docker("commit", *(f"--change={change}" for change in changes), _CONTAINER, name)
        finally:
            docker("rm", "--force", "--volumes", _CONTAINER)
    _remove_old()
    return name


def _remove_old() -> None:
    names = docker("images", "--format={{.Repository}}:{{.Tag}}", REPOSITORY).split()
    stored = [name for name in names if name != _BASE]  # newest first
    for name in stored[images.STORED_IMAGES :]:
        docker("rmi", name)


def kind_files() -> Path:
    """Return the folder of the files of kind's base image, in Go's module cache."""
    command = ["go", "mod", "download", "-json", "sigs.k8s.io/kind"]
    module = json.loads(run(command, folder=binaries.MODULES / "programs"))
    return Path(module["Dir"]) / "images" / "base" / "files"


def _stage_files(target: Path, files: Path, programs: Mapping[str, Path]) -> None:
    for source in sorted(path for path in files.rglob("*") if path.is_file()):
        path = target / source.relative_to(files)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
        is_script = str(path.parent.relative_to(target)) in _SCRIPTS
        path.chmod(0o755 if is_script else 0o644)
    for folder, names in _BINARIES.items():
        (target / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(programs[name], target / folder)
    (target / "kind" / "version").write_text(kubernetes_version(programs), encoding="utf-8")


def _stage_images(target: Path, files: Path, programs: Mapping[str, Path]) -> None:
    """Write the images of kubeadm, and the pause image that containerd's configuration names."""
    target.mkdir()
    version = f"--kubernetes-version={kubernetes_version(programs)}"
    names = run([str(programs["kubeadm"]), "config", "images", "list", version]).split()
    for name in names:
        program = name.rpartition("/")[2].partition(":")[0]
        archive = target / f"{program}.tar"
        if program == "kube-proxy":
            contents = {f"usr/local/bin/{program}": programs[program], **_iptables_files()}
            write_image(archive, name, contents, entrypoint=[f"/usr/local/bin/{program}"])
        elif program != "pause":
            images.program_image(name, programs[program], archive)
    config = (files / "etc" / "containerd" / "config.toml").read_text(encoding="utf-8")
    [pause] = re.findall(r'sandbox_image = "(.+)"', config)
    images.pause_image(target / "pause.tar", name=pause)


def _iptables_files() -> dict[str, Path]:
    """Return this machine's iptables with all its libraries, by path in an image.

    One program has all commands and chooses by its name; kube-proxy finds it in /usr/local/bin.
    """
    command = shutil.which("iptables-nft", path="/usr/sbin:/sbin:/usr/bin")
    if command is None:
        raise BuildFailedError("iptables-nft is missing; install Debian's iptables")
    program = Path(command).resolve()
    extensions = sorted(Path("/usr/lib").glob("*/xtables/*.so"))
    libraries = {
        Path(path)
        for binary in (program, *extensions)
        for path in re.findall(r"(/\S+) \(0x", run(["ldd", str(binary)]))
    }
    return {
        **{f"usr/local/bin/{name}": program for name in _IPTABLES},
        **{str(path).lstrip("/"): path for path in (*extensions, *sorted(libraries))},
    }


def kubernetes_version(programs: Mapping[str, Path]) -> str:
    """Return the version of Kubernetes, such as `v1.34.4`."""
    return run([str(programs["kubeadm"]), "version", "--output=short"]).strip()


def _digest(base: Path, programs: Mapping[str, Path]) -> str:
    """Hash the image's inputs; the folder of a program is a hash of the program's inputs."""
    digest = hashlib.sha256(base.name.encode())
    for path in (INSTALL, Path(__file__), images.PAUSE_SOURCE):
        digest.update(path.read_bytes())
    for name in sorted(programs):
        digest.update(f"{programs[name]}".encode())
    return digest.hexdigest()[:16]
