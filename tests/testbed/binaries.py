"""The test bed's programs, built with Go once and kept in the user's cache folder.

`go build` keeps compiled packages, but linking five programs of 25 to 100 MB still takes the best
part of a minute, and a test run should take none. The folder's name is a hash of everything that
decides the result, so a changed pin, flag or compiler builds anew and never uses a stale program.

    python -m tests.testbed.binaries          # all that `make test` needs
    python -m tests.testbed.binaries kubelet  # one
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).resolve().parent
"""Each pinned Go module is a folder here: their dependencies conflict, so they cannot share one."""

LOG_TAIL_LINES = 20


class GoMissingError(RuntimeError):
    """Go is not installed, so nothing can be built; tests skip, or fail under `CI=true`."""


class BuildFailedError(RuntimeError):
    """`go build` ended with an error; the message ends with the last lines that it wrote."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One command of a pinned module."""

    module: str
    """Folder of the go.mod, beside this file."""
    package: str
    """Import path of the command."""
    built_as: str
    """The name that `go build` gives the file: the last word of the import path."""
    own_sources: str = ""
    """Folder of our own sources inside the module; empty for a program of others."""
    by_name_alone: bool = False
    """Whether it is built only when it is asked for by name."""


PROGRAMS: dict[str, Program] = {
    **{
        name: Program(module="kubernetes", package=f"k8s.io/kubernetes/cmd/{name}", built_as=name)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    },
    "contract": Program(
        module="kubernetes",
        package="esg-scheduler.io/testbed/kubernetes/contract",
        built_as="contract",
        own_sources="contract",
    ),
    "etcd": Program(module="etcd", package="go.etcd.io/etcd/server/v3", built_as="server"),
    "kwok": Program(module="kwok", package="sigs.k8s.io/kwok/cmd/kwok", built_as="kwok"),
    "helm": Program(module="helm", package="helm.sh/helm/v4/cmd/helm", built_as="helm"),
    "kube-score": Program(
        module="kube-score",
        package="github.com/zegl/kube-score/cmd/kube-score",
        built_as="kube-score",
    ),
    "coredns": Program(
        module="coredns",
        package="esg-scheduler.io/testbed/coredns/dns",
        built_as="dns",
        own_sources="dns",
        by_name_alone=True,  # a real node wants a container runtime besides
    ),
    "kind": Program(
        module="kind",
        package="sigs.k8s.io/kind",
        built_as="kind",
        by_name_alone=True,  # it wants Docker, or Podman, besides
    ),
    **{
        name: Program(
            module="kubelet",
            package=f"k8s.io/kubernetes/cmd/{name}",
            built_as=name,
            by_name_alone=True,  # a real node wants a container runtime besides
        )
        for name in ("kubelet", "kube-proxy")
    },
}


def cache_folder() -> Path:
    """Where the programs are kept: `$XDG_CACHE_HOME`, or `~/.cache`, below `esg-scheduler`."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "esg-scheduler" / "testbed"


def build(names: Iterable[str]) -> dict[str, Path]:
    """The paths of the programs asked for, by name, after building those that are not kept yet.

    Safe to call from several processes at once: the second waits for the first and builds nothing.

    Raises:
        GoMissingError: there is no `go` on the PATH.
        BuildFailedError: a build failed.
        KeyError: a name that is none of `PROGRAMS`.
    """
    wanted = {name: PROGRAMS[name] for name in names}
    go = shutil.which("go")
    if go is None:
        raise GoMissingError(
            "the test bed needs Go 1.26 or later on the PATH: it builds Kubernetes and Helm itself"
        )
    paths = {name: _kept_at(go, name, program) for name, program in wanted.items()}
    for module in sorted({program.module for program in wanted.values()}):
        in_module = {n: p for n, p in paths.items() if wanted[n].module == module}
        if all(path.exists() for path in in_module.values()):
            continue
        with locked(module):
            missing = {n: p for n, p in in_module.items() if not p.exists()}
            if missing:
                _build_module(go, module, missing)
    return paths


def is_kept(name: str) -> bool:
    """Whether `build` would have nothing to do for the program, and there is Go to know it by.

    Raises:
        KeyError: a name that is none of `PROGRAMS`.
    """
    go = shutil.which("go")
    return go is not None and _kept_at(go, name, PROGRAMS[name]).exists()


def _flags(module: str) -> list[str]:
    """The build's arguments; versions are read from go.mod, so that a pin stands in one place."""
    variables = {}
    if module in {"kubernetes", "kubelet"}:
        # Without these the API server calls itself v0.0.0-master, and clients complain.
        major, minor, patch = _pinned_version(module, "k8s.io/kubernetes")
        package = "k8s.io/component-base/version"
        variables = {
            f"{package}.gitVersion": f"v{major}.{minor}.{patch}",
            f"{package}.gitMajor": major,
            f"{package}.gitMinor": minor,
        }
    elif module == "kwok":
        version = ".".join(_pinned_version(module, "sigs.k8s.io/kwok"))
        variables = {"sigs.k8s.io/kwok/pkg/consts.Version": f"v{version}"}
    settings = "".join(f" -X {name}={value}" for name, value in variables.items())
    return ["-mod=readonly", "-trimpath", "-ldflags", f"-s -w{settings}"]


def _pinned_version(module: str, requirement: str) -> list[str]:
    pins = (MODULES / module / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(requirement)} v(\d+)\.(\d+)\.(\d+)", pins)
    if found is None:
        raise BuildFailedError(f"{module}/go.mod does not require {requirement}")
    return list(found.groups())


def _environment() -> dict[str, str]:
    """The caller's environment without what would change the result from one machine to another."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}


def _kept_at(go: str, name: str, program: Program) -> Path:
    folder = MODULES / program.module
    compiler = subprocess.run(
        [go, "env", "GOVERSION", "GOOS", "GOARCH"],
        cwd=folder, env=_environment(), check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    inputs = [folder / "go.mod", folder / "go.sum"]
    if program.own_sources:
        inputs += sorted((folder / program.own_sources).glob("*.go"))
    digest = hashlib.sha256("\n".join([compiler, *_flags(program.module)]).encode())
    for path in inputs:
        digest.update(path.read_bytes())
    return cache_folder() / digest.hexdigest()[:16] / name


def _build_module(go: str, module: str, missing: dict[str, Path]) -> None:
    """Build in a folder beside the final one, then rename: a half-written program is never seen."""
    started = time.monotonic()
    _say(f"building {', '.join(missing)} (minutes where Go's own build cache is cold)")
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="building-") as scratch:
        packages = [PROGRAMS[name].package for name in missing]
        done = subprocess.run(
            [go, "build", *_flags(module), "-o", scratch + "/", *packages],
            cwd=MODULES / module, env=_environment(), check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            tail = "\n".join(done.stdout.splitlines()[-LOG_TAIL_LINES:])
            raise BuildFailedError(f"go build in tests/testbed/{module} failed:\n{tail}")
        for name, path in missing.items():
            path.parent.mkdir(exist_ok=True)
            (Path(scratch) / PROGRAMS[name].built_as).replace(path)
    _say(f"built {', '.join(missing)} in {time.monotonic() - started:.0f} s")


@contextmanager
def locked(kind: str) -> Iterator[None]:
    """One build of a kind at a time on this machine; the kernel drops the lock of a dead one."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f"{kind}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another process that builds {kind}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    sys.stderr.write(f"test bed: {line}\n")
    sys.stderr.flush()


def main(names: list[str]) -> int:
    """Build the named programs, or those of `make test`; print their paths. The exit status."""
    unknown = sorted(set(names) - set(PROGRAMS))
    if unknown:
        _say(f"no such program: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
        return 2
    try:
        paths = build(names or (n for n, p in PROGRAMS.items() if not p.by_name_alone))
    except (GoMissingError, BuildFailedError) as error:
        _say(str(error))
        return 1
    for path in paths.values():
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
