"""Images of kind's nodes: the project's, a model server's, and substitutes of public ones.

Where there is a node image to pull, Docker builds the images that have a Dockerfile. Else no image
registry is used: debootstrap creates the base under the name in the Dockerfile. An image of a Go
program contains only the program, under the public image's name. The user's cache folder stores
a built image under a hash of all its inputs, like the programs.
"""

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.testbed import REPOSITORY
from tests.testbed.build_steps import BuildFailedError, cache_folder, run, say, stored
from tests.testbed.docker import docker
from tests.testbed.image_archive import write_image
from tests.testbed.machine_requirements import IMAGE_VARIABLE

PROJECT = "docker.io/library/esg-scheduler"
"""Full name of the chart's image `esg-scheduler` in a container runtime."""
STORED_IMAGES = 2
"""One image of the current tree and one of the previous tree."""

MLSERVER = "testbed.local/mlserver:1"
"""MLServer with the module of a small network; its settings are those of the pod."""


class _Built(NamedTuple):
    """An image with a Dockerfile.

    Attributes:
        image: its name.
        dockerfile: its Dockerfile; a stage `dependencies` is a layer that later builds find.
        context: the paths that the Dockerfile copies.
    """

    image: str
    dockerfile: Path
    context: Sequence[str]


SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
_COMPILER_PACKAGES = "g++,libc6-dev,python3-dev"  # in public images of Python without `-slim`
_NEEDLESS = ("var/cache/apt", "var/lib/apt/lists", "var/log", *(
    f"usr/share/{name}" for name in ("doc", "info", "locale", "man")
))  # fmt: skip
_HOST_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
"""Certificates and pip's settings of this machine: mounted during the build, not in the image."""
PAUSE_SOURCE = Path(__file__).with_name("pause.c")


def project_image() -> Path:
    """Return the archive of the project's image; build it with the Dockerfile unless it is stored.

    Raises:
        BuildFailedError: a build step failed.
    """
    requirements = ("requirements/build.txt", "requirements/run.txt")
    context = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "hatch_build.py",
        *requirements,
        "scheduler",
    )
    name = f"{PROJECT}:{version()}"
    return _stored_image("project", _Built(name, REPOSITORY / "Dockerfile", context))


def mlserver_image() -> Path:
    """Return the archive of the image `MLSERVER`; raises like `project_image`."""
    models = "tests/testbed/mlserver_models"
    context = ("requirements/model-servers.txt", f"{models}/onnx_classifier.py")
    return _stored_image("mlserver", _Built(MLSERVER, REPOSITORY / models / "Dockerfile", context))


def program_image(name: str, program: Path, archive: Path) -> Path:
    """Write an image of one static program over an empty root.

    Args:
        name: name of the image, with registry and tag.
        program: becomes ``/usr/local/bin/<its name>`` and the entry point.
        archive: the file to write.
    """
    inside = f"usr/local/bin/{program.name}"
    write_image(archive, name, {inside: program}, entrypoint=[f"/{inside}"])
    return archive


def pause_image(archive: Path, *, name: str) -> Path:
    """Write the image of the process that holds a pod's namespaces."""
    with tempfile.TemporaryDirectory(prefix="esg-pause-") as scratch:
        program = Path(scratch) / "pause"
        run(["cc", "-static", "-Os", "-s", "-o", str(program), str(PAUSE_SOURCE)])
        return program_image(name, program, archive)


def version() -> str:
    """Return the image tag of the chart."""
    chart = REPOSITORY / "helm" / "esg-scheduler" / "Chart.yaml"
    return _match(r'^appVersion: "?([^"\n]+)"?$', chart.read_text(encoding="utf-8"))


def _stored_image(kind: str, built: _Built) -> Path:
    with tempfile.TemporaryDirectory(prefix="esg-image-") as scratch:
        context = Path(scratch) / "context"
        _copy_context(built.context, context)  # the tree may change during the build
        archive = folder() / f"{kind}-{_digest(built.dockerfile, context)}.tar"

        def build(fresh: Path) -> None:
            _build_image(kind, built, context, fresh)

        return stored(archive, kind="images", build=build)


def _build_image(kind: str, built: _Built, context: Path, archive: Path) -> None:
    began_s = time.monotonic()
    say(f"building the image {built.image}")
    if os.environ.get(IMAGE_VARIABLE):  # there is a registry, so Docker builds on the public base
        docker("build", f"--tag={built.image}", f"--file={built.dockerfile}", str(context))
        docker("save", f"--output={archive}", built.image)
    else:
        _build_without_registry(kind, built, context, archive)
    _remove_old(kind)
    say(f"built it in {time.monotonic() - began_s:.0f} s")


def _build_without_registry(kind: str, built: _Built, context: Path, archive: Path) -> None:
    _buildah("rm", "--all")  # containers of builds that were killed: their images cannot be removed
    stored_bases = _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()
    for base in re.findall(
        r"^ARG \w*BASE=(\S+)$", built.dockerfile.read_text("utf-8"), re.MULTILINE
    ):
        if base not in stored_bases:
            _build_base(base)
    # `rmi --prune` removes layers without a name, so the stage of the dependencies has one.
    stage = ("--target=dependencies", f"--tag=testbed.local/{kind}-dependencies:1")
    for target in (stage, (f"--tag={built.image}",)):
        _build(built.dockerfile, context, *target)
    _buildah("push", built.image, f"docker-archive:{archive}:{built.image}")
    _buildah("rmi", "--prune")


def _remove_old(kind: str) -> None:
    archives = sorted(folder().glob(f"{kind}-*.tar"), key=lambda path: -path.stat().st_mtime)
    for old in archives[STORED_IMAGES - 1 :]:
        old.unlink()


def _build(dockerfile: Path, context: Path, *target: str) -> None:
    volumes = [f"--volume={path}:{path}:ro" for path in _HOST_FILES if Path(path).exists()]
    options = ("--layers", "--isolation=chroot", "--pull-never", f"--file={dockerfile}")
    _buildah("bud", *options, *volumes, *target, str(context))


def _build_base(name: str) -> None:
    """Build a substitute of the public base image: a small Debian with Python."""
    say(f"building {name} with debootstrap")
    with tempfile.TemporaryDirectory(prefix="esg-base-") as scratch:
        root = Path(scratch) / "root"
        is_slim = "-slim" in name
        packages = _PACKAGES if is_slim else f"{_PACKAGES},{_COMPILER_PACKAGES}"
        debian_root(root, packages=packages)
        container = _buildah("from", "scratch").strip()
        _buildah("add", "--quiet", container, str(root), "/")
        path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        _buildah("config", "--env", f"PATH={path}", container)
        _buildah("commit", "--quiet", "--rm", container, name)


def debian_root(root: Path, *, packages: str) -> None:
    """Write a small Debian with these packages into a folder."""
    run(["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(root)])
    for needless in _NEEDLESS:
        shutil.rmtree(root / needless)
        (root / needless).mkdir()


def _copy_context(names: Sequence[str], context: Path) -> None:
    context.mkdir()
    for name in names:
        source = REPOSITORY / name
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, context / name, ignore=ignored)
        else:
            shutil.copy2(source, context / name)


def _digest(dockerfile: Path, context: Path) -> str:
    """Hash all inputs of the image; the lock file pins the packages of the registries."""
    digest = hashlib.sha256(dockerfile.read_bytes())
    digest.update(f"{SUITE} {_PACKAGES} {_COMPILER_PACKAGES} {version()}".encode())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        digest.update(f"\0{path.relative_to(context)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def folder() -> Path:
    """Return the folder of stored images; create it if absent."""
    path = cache_folder().with_name("images")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _buildah(*arguments: str) -> str:
    storage = folder() / "storage"
    options = [f"--root={storage}", f"--runroot={storage}-run", "--storage-driver=overlay"]
    return run(["buildah", *options, *arguments])


def _match(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise BuildFailedError(f"no line matches {pattern}; correct the Dockerfile or Chart.yaml")
    return match[1]
