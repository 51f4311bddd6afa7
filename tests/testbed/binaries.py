"""Programs of the test bed, built with Go once and stored in the user's cache folder.

Go caches compiled packages but links again: five programs of 25 to 100 MB take most of a minute,
and a test run should take none. The folder's name is a hash of every input of the build, so a new
pin, flag or compiler never runs a stale program.

    python -m tests.testbed.binaries          # all that `make test` needs without a real node
    python -m tests.testbed.binaries kubelet  # one
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.testbed.build_steps import BuildFailedError, cache_folder, locked, run, say

MODULES = Path(__file__).resolve().parent
"""Folder of the Go modules. One module has all programs whose dependencies agree: with one version
of each library, Go compiles each library once. The other modules use the same versions as far as
their own Kubernetes libraries allow."""

KUBERNETES = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kubeadm", "kubectl", "kubelet", "kube-proxy"),
)
PACKAGES = {
    "programs": {
        **{name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES},
        "contract": "./contract",
        "coredns": "./coredns",
        "etcd": "go.etcd.io/etcd/server/v3",
        "helm": "helm.sh/helm/v4/cmd/helm",
        "kind": "sigs.k8s.io/kind",
    },
    "containerd": {
        **{
            name: f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        "nvidia-nri": "./nvidia-nri",
    },
    "actionlint": {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"},
    "jaeger": {"all-in-one": "github.com/jaegertracing/jaeger/cmd/all-in-one"},
    "kwok": {"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    "karpenter": {"karpenter": "sigs.k8s.io/karpenter/kwok"},
    "kube-score": {"kube-score": "github.com/zegl/kube-score/cmd/kube-score"},
    "kueue": {"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
    "proxy": {
        name: f"./{name}" for name in ("do-nothing-server", "inference-load", "reverse-proxy")
    },
}
"""Import path of each program, by module and name."""

MODULE_OF = {name: module for module, packages in PACKAGES.items() for name in packages}

ON_REQUEST = {
    *("kubeadm", "kubectl", "kubelet", "kube-proxy", "coredns", "kind"),
    *PACKAGES["containerd"],
    *PACKAGES["jaeger"],
    *PACKAGES["karpenter"],
    *PACKAGES["kueue"],
    *PACKAGES["proxy"],
}
"""Programs that run only with a container runtime, neighbours of other projects, and those of
benchmarks; built only by name."""


class GoMissingError(RuntimeError):
    """Go is not installed; tests skip, or fail under `CI=true`."""


def build(names: Iterable[str]) -> dict[str, Path]:
    """Build the named programs that the cache lacks; return the path of each program by name.

    Safe to call from several processes at once: the second waits for the first and builds nothing.

    Raises:
        GoMissingError: there is no `go` on the PATH.
        BuildFailedError: a build failed.
        KeyError: an unknown name.
    """
    modules = {name: MODULE_OF[name] for name in names}
    go = shutil.which("go")
    if go is None:
        raise GoMissingError(
            "the test bed needs Go 1.26 or later on the PATH: it builds Kubernetes and Helm itself"
        )
    paths = {name: _folder(go, module) / name for name, module in modules.items()}
    for module in sorted(set(modules.values())):
        chosen = [name for name in paths if modules[name] == module]
        if all(paths[name].exists() for name in chosen):
            continue
        with locked(module):
            if missing := [name for name in chosen if not paths[name].exists()]:
                _build(go, module, missing)
    return paths


def is_built(name: str) -> bool:
    """Return true if Go is installed and the cache holds the program."""
    go = shutil.which("go")
    return go is not None and (_folder(go, MODULE_OF[name]) / name).exists()


def flags(kubernetes: str = "") -> list[str]:
    """Return the build arguments for a release of Kubernetes, by default the pinned one.

    Versions come from go.mod, so that each pin stands in one place.
    """
    version = kubernetes or pinned_kubernetes()
    major, minor, _ = version.split(".")
    variables = {
        # Without these the API server reports v0.0.0-master, and clients complain.
        "k8s.io/component-base/version.gitVersion": f"v{version}",
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        # Helm's cluster version without a cluster; its own default is 1.20.
        "helm.sh/helm/v4/pkg/chart/common.k8sVersionMajor": major,
        "helm.sh/helm/v4/pkg/chart/common.k8sVersionMinor": minor,
        "sigs.k8s.io/kwok/pkg/consts.Version": f"v{_pinned_version('kwok', 'sigs.k8s.io/kwok')}",
    }
    settings = "".join(f" -X {name}={value}" for name, value in variables.items())
    # The linker strips debug information, so the compiler need not write it: a sixth of its time.
    no_debug = ["-gcflags=all=-dwarf=false", "-ldflags", f"-s -w{settings}"]
    return ["-mod=readonly", "-trimpath", *no_debug]


def pinned_kubernetes() -> str:
    """Return the release of Kubernetes that go.mod pins."""
    return _pinned_version("programs", "k8s.io/kubernetes")


def _pinned_version(module: str, requirement: str) -> str:
    pins = MODULES / module / "go.mod"
    pattern = rf"{re.escape(requirement)} v(\d+\.\d+\.\d+)$"
    match = re.search(pattern, pins.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise BuildFailedError(f"{pins} does not require a release of {requirement}")
    return match[1]


def environment() -> dict[str, str]:
    """Return the caller's environment without variables that change the result between machines."""
    # Short-lived compilers need no garbage collection: a sixth of their time.
    collector = {"GOGC": "off", "GOMEMLIMIT": "1GiB"}
    return {**os.environ, **collector, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}


def _folder(go: str, module: str) -> Path:
    command = [go, "env", "GOVERSION", "GOOS", "GOARCH"]
    compiler = run(command, folder=MODULES / module, environment=environment())
    digest = hashlib.sha256("\n".join([compiler, *flags()]).encode())
    for pattern in ("go.mod", "go.sum", "*/*.go"):
        for path in sorted((MODULES / module).glob(pattern)):
            digest.update(path.read_bytes())
    return cache_folder() / digest.hexdigest()[:16]


def _build(go: str, module: str, names: list[str]) -> None:
    """Build in a scratch folder, then rename, so that no process sees a half-written program."""
    started_s = time.monotonic()
    say(f"building {', '.join(names)} (minutes where Go's own build cache is cold)")
    packages = [PACKAGES[module][name] for name in names]
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="building-") as scratch:
        command = [go, "build", *flags(), "-o", scratch + "/", *packages]
        run(command, folder=MODULES / module, environment=environment())
        folder = _folder(go, module)
        folder.mkdir(exist_ok=True)
        for name, package in zip(names, packages, strict=True):
            executable = package.removesuffix("/v3").rpartition("/")[2]
            (Path(scratch) / executable).replace(folder / name)
    say(f"built {', '.join(names)} in {time.monotonic() - started_s:.0f} s")


def main(names: list[str]) -> int:
    """Build the named programs, or those of `make test`, and print their paths."""
    unknown = sorted(set(names) - set(MODULE_OF))
    if unknown:
        say(f"unknown program: {', '.join(unknown)}; choose from {', '.join(MODULE_OF)}")
        return 2
    try:
        paths = build(names or [name for name in MODULE_OF if name not in ON_REQUEST])
    except (GoMissingError, BuildFailedError) as error:
        say(str(error))
        return 1
    for path in paths.values():
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
