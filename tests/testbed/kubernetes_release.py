"""Programs of another Kubernetes release than the one that `programs/go.mod` pins.

With `ESG_TEST_KUBERNETES=1.36.3` the control plane runs that release, and the node image of kind is
built from it. A pulled node image chooses its own release for the tests' kube-scheduler: an older
one would not know what the API server stores. The Go module of a release is generated, because its
many pins follow from the release: Kubernetes requires its libraries at v0.0.0 and replaces them by
folders that a published module does not have.

    ESG_TEST_KUBERNETES=1.30.14 python -m tests.testbed.kubernetes_release  # a control plane
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.testbed import binaries
from tests.testbed.build_steps import BuildFailedError, cache_folder, locked, run, say
from tests.testbed.machine_requirements import IMAGE_VARIABLE

VARIABLE = "ESG_TEST_KUBERNETES"
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def chosen() -> str:
    """Return the release of the variable or of kind's pulled image; empty for the pinned one."""
    pulled = re.search(r":v([\d.]+)", os.environ.get(IMAGE_VARIABLE, ""))
    release = (os.environ.get(VARIABLE) or (pulled[1] if pulled else "")).removeprefix("v")
    pins = (binaries.MODULES / "programs" / "go.mod").read_text(encoding="utf-8")
    return "" if f"k8s.io/kubernetes v{release}\n" in pins else release


def minor() -> int:
    """Return the minor version of the chosen release, or of the pinned one: 34 of 1.34.4."""
    return int((chosen() or binaries.pinned_kubernetes()).split(".")[1])


def build(names: Iterable[str]) -> dict[str, Path]:
    """Build programs of the chosen release, or of the pinned one; see `binaries.build`.

    Raises:
        BuildFailedError: the variable is no release, or a build failed.
    """
    names = list(names)
    release = chosen()
    if not release:
        return binaries.build(names)
    if not re.fullmatch(r"1\.\d+\.\d+", release):
        raise BuildFailedError(f"{VARIABLE}={release} is no release; write 1.36.3, say")
    paths = binaries.build(name for name in names if name not in binaries.KUBERNETES)
    folder = cache_folder() / f"kubernetes-{release}"
    with locked(folder.name):
        released = [name for name in names if name in binaries.KUBERNETES]
        if missing := [name for name in released if not (folder / name).exists()]:
            _build(release, missing, folder)
    return paths | {name: folder / name for name in released}


def _build(release: str, names: list[str], folder: Path) -> None:
    say(f"building Kubernetes {release} (minutes where Go's own build cache is cold)")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="building-") as scratch:
        module, programs = Path(scratch) / "module", Path(scratch) / "programs"
        module.mkdir()
        _write_module(release, names, module)
        _go(module, "mod", "tidy")
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in names]
        _go(module, "build", *binaries.flags(release), "-o", f"{programs}/", *packages)
        for name in names:
            (programs / name).replace(folder / name)


def _write_module(release: str, names: list[str], module: Path) -> None:
    """Write a module that requires the release and its libraries at their published versions."""
    published = _go(module.parent, "mod", "download", "-json", f"k8s.io/kubernetes@v{release}")
    [path] = re.findall(r'"GoMod": "(.+)"', published)
    text = Path(path).read_text(encoding="utf-8")
    libraries = re.findall(r"^\t(k8s\.io/\S+) v0\.0\.0$", text, flags=re.MULTILINE)
    version = f"v0.{release.removeprefix('1.')}"
    lines = [
        "module testbed.local/kubernetes",
        *re.findall(r"^(?:go|godebug) .+$", text, flags=re.MULTILINE),
        f"require k8s.io/kubernetes v{release}",
        *(f"replace {library} => {library} {version}" for library in libraries),
    ]
    (module / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")
    imports = "".join(f'import _ "k8s.io/kubernetes/cmd/{name}"\n' for name in names)
    tools = f"//go:build tools\n\npackage tools\n\n{imports}"
    (module / "tools.go").write_text(tools, encoding="utf-8")


def _go(folder: Path, *arguments: str) -> str:
    return run(["go", *arguments], folder=folder, environment=binaries.environment())


def main() -> int:
    """Build the programs of a control plane; return the exit status."""
    try:
        build(CONTROL_PLANE)
    except (binaries.GoMissingError, BuildFailedError) as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
