"""The images of the real node: ours, by its Dockerfile, and those that stand for public ones.

No image registry is reached. The base is made by debootstrap, under the name that the Dockerfile
asks for; an image of a Go program is the program over an empty root, under the public image's name.
Ours is kept in the user's cache folder under a hash of all that goes into it, as programs are.

    python -m tests.testbed.images   # builds what is missing, and says what there is
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.testbed import REPOSITORY, binaries
from tests.testbed.image_archive import write_image
from tests.testbed.machine_needs import missing_for_a_node

PROJECT = "docker.io/library/esg-scheduler"
"""How a container runtime spells the chart's `esg-scheduler`."""
PAUSE = "testbed.local/pause:1"
KEPT = 2
"""Images of ours kept: one for the tree as it is, one for the tree as it was."""

_DEPENDENCIES = "testbed.local/dependencies:1"
_DOCKERFILE = REPOSITORY / "Dockerfile"
_CONTEXT = (
    "pyproject.toml", "README.md", "LICENSE", "requirements/build.txt", "requirements/run.txt",
    "scheduler",
)  # fmt: skip
"""What the Dockerfile copies."""
_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
_NEEDLESS = ("var/cache/apt", "var/lib/apt/lists", "var/log", *(
    f"usr/share/{each}" for each in ("doc", "info", "locale", "man")
))  # fmt: skip
_LENT = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
"""Whom this machine trusts, and where its pip looks: lent to the build, and not in the image."""
_PAUSE_SOURCE = Path(__file__).with_name("pause.c")


class ImageError(RuntimeError):
    """An image could not be built; the message ends with the last lines that were written."""


def project_image() -> Path:
    """The archive of our image, built by its Dockerfile unless it is kept already.

    Raises:
        ImageError: a step failed.
    """
    with tempfile.TemporaryDirectory(prefix="esg-image-") as scratch:
        context = Path(scratch) / "context"
        _copy_context(context)  # others may edit the tree while this builds
        archive = _folder() / f"project-{_digest(context)}.tar"
        if archive.exists():
            return archive
        with binaries.locked("images"):
            if not archive.exists():
                _build_project(context, archive)
    return archive


def program_image(name: str, program: Path, archive: Path) -> Path:
    """An image of one static program over an empty root, found by its own name.

    Args:
        name: the image's, with registry and tag.
        program: becomes ``/usr/local/bin/<its name>`` and the entry point.
        archive: the file to write.
    """
    inside = f"usr/local/bin/{program.name}"
    write_image(archive, name, {inside: program}, entrypoint=[f"/{inside}"])
    return archive


def pause_image(archive: Path) -> Path:
    """The image of the process that holds a pod's namespaces."""
    with tempfile.TemporaryDirectory(prefix="esg-pause-") as scratch:
        program = Path(scratch) / "pause"
        _run(["cc", "-static", "-Os", "-s", "-o", str(program), str(_PAUSE_SOURCE)])
        return program_image(PAUSE, program, archive)


def version() -> str:
    """The tag that the chart asks for."""
    chart = REPOSITORY / "helm" / "esg-scheduler" / "Chart.yaml"
    return _found(r'^appVersion: "?([^"\n]+)"?$', chart.read_text(encoding="utf-8"))


def _build_project(context: Path, archive: Path) -> None:
    began = time.monotonic()
    base = _found(r"^ARG BASE=(\S+)$", _DOCKERFILE.read_text(encoding="utf-8"))
    if base not in _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        _build_base(base)
    name = f"{PROJECT}:{version()}"
    _say(f"building the image {name}")
    # Named, the stage of what the project needs outlives the removal of layers that nobody names.
    for target in (("--target=dependencies", f"--tag={_DEPENDENCIES}"), (f"--tag={name}",)):
        _build(context, *target)
    fresh = archive.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    _buildah("push", name, f"docker-archive:{fresh}:{name}")
    fresh.rename(archive)
    for old in sorted(_folder().glob("project-*.tar"), key=_age, reverse=True)[KEPT:]:
        old.unlink()
    _buildah("rmi", "--prune")
    _say(f"built it in {time.monotonic() - began:.0f} s")


def _build(context: Path, *target: str) -> None:
    lent = [f"--volume={each}:{each}:ro" for each in _LENT if Path(each).exists()]
    how = ("--layers", "--isolation=chroot", "--pull-never", f"--file={_DOCKERFILE}")
    _buildah("bud", *how, *lent, *target, str(context))


def _build_base(name: str) -> None:
    """The public base image's likeness: a small Debian with Python, which this machine can get."""
    _say(f"making {name} with debootstrap")
    with tempfile.TemporaryDirectory(prefix="esg-base-") as scratch:
        root = Path(scratch) / "root"
        _run(["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root)])
        for folder in _NEEDLESS:
            shutil.rmtree(root / folder)
            (root / folder).mkdir()
        container = _buildah("from", "scratch").strip()
        _buildah("add", "--quiet", container, str(root), "/")
        path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        _buildah("config", "--env", f"PATH={path}", container)
        _buildah("commit", "--quiet", "--rm", container, name)


def _copy_context(context: Path) -> None:
    context.mkdir()
    for name in _CONTEXT:
        source = REPOSITORY / name
        (context / name).parent.mkdir(exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, context / name, ignore=ignored)
        else:
            shutil.copy2(source, context / name)


def _digest(context: Path) -> str:
    """Of all that decides the image, but what the registries answer: that, the lock file pins."""
    digest = hashlib.sha256(_DOCKERFILE.read_bytes())
    digest.update(f"{_SUITE} {_PACKAGES} {version()}".encode())
    for path in _files(context):
        digest.update(f"\0{path.relative_to(context)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _folder() -> Path:
    folder = binaries.cache_folder().with_name("images")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _buildah(*arguments: str) -> str:
    storage = _folder() / "storage"
    where = [f"--root={storage}", f"--runroot={storage}-run", "--storage-driver=overlay"]
    return _run(["buildah", *where, *arguments])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        tail = "\n".join(lines[-binaries.LOG_TAIL_LINES :])
        raise ImageError(f"{' '.join(command)} failed:\n{tail}")
    return done.stdout


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ImageError(f"nothing matches {pattern}")
    return match[1]


def _age(path: Path) -> float:
    return path.stat().st_mtime


def _say(line: str) -> None:
    sys.stderr.write(f"test bed: {line}\n")
    sys.stderr.flush()


def main() -> int:
    """Build the image and print where it is; the exit status."""
    if lacking := missing_for_a_node():
        _say(lacking)
        return 1
    try:
        sys.stdout.write(f"{project_image()}\n")
    except ImageError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
