"""Requirements of the suites on kind on the machine, and those that it lacks.

`debian-packages.txt` lists the Debian packages; `.ci/run` installs from the same list.

    python -m tests.testbed.machine_requirements   # exits with 1 and names a missing requirement
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.testbed.build_steps import say

IMAGE_VARIABLE = "ESG_KIND_IMAGE"
"""Environment variable with the node image to pull, such as `kindest/node:v1.36.4@sha256:...`;
without it the test bed builds one."""
PACKAGES = Path(__file__).with_name("debian-packages.txt")


def missing_packages(purpose: str) -> list[str]:
    """Return the listed Debian packages of a purpose whose program or file is missing."""
    lines = PACKAGES.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [package for package, path, use in rows if use == purpose and not _exists(path)]


def missing_for_kind() -> str:
    """Return one line with the missing requirements; empty without any.

    A C compiler counts too: it builds the nodes' pause program and the workers' NVML. A machine
    with a running Docker and a node image to pull needs none of the packages that replace them.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "kind needs Linux and root, which reads the files of its nodes"
    if shutil.which("go") is None:
        return "kind needs Go 1.26 or later on the PATH: it is built from its module"
    if os.environ.get(IMAGE_VARIABLE) and not docker_answers():
        return f"kind needs a running Docker to pull {os.environ[IMAGE_VARIABLE]}"
    purposes = ["agent"]
    purposes += [] if os.environ.get(IMAGE_VARIABLE) else ["image"]
    purposes += [] if docker_answers() else ["docker"]
    packages = [package for purpose in purposes for package in missing_packages(purpose)]
    if packages:
        return f"kind needs these Debian packages: {' '.join(packages)}"
    return ""


def docker_answers() -> bool:
    """Return true if a Docker daemon answers."""
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "version"], check=False, capture_output=True)
    return done.returncode == 0


def _exists(path: str) -> bool:
    return Path(path).exists() if path.startswith("/") else shutil.which(path) is not None


def main() -> int:
    """Print missing requirements; return the exit status."""
    missing = missing_for_kind()
    if missing:
        say(f"{missing}; the suites on kind do not run")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
