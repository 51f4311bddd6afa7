"""Requirements of the image and the real node on the machine, and those that it lacks.

`debian-packages.txt` lists the Debian packages; `.ci/run` installs from the same list.

    python -m tests.testbed.machine_requirements   # exits with 1 and names a missing requirement
"""

import os
import shutil
import sys
from pathlib import Path

PACKAGES = Path(__file__).with_name("debian-packages.txt")


def missing_packages(purpose: str) -> list[str]:
    """Return the listed Debian packages of a purpose whose program or file is missing."""
    lines = PACKAGES.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [package for package, path, use in rows if use == purpose and not _exists(path)]


def missing_for_a_node() -> str:
    """Return one line with the missing requirements of image and real node; empty without any.

    A C compiler counts too: it builds the node's pause program and its NVML.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "the image and the real node need Linux and root"
    if shutil.which("go") is None:
        return "the real node needs Go 1.26 or later on the PATH: it builds Kubernetes itself"
    packages = missing_packages("node") + missing_packages("agent")
    if packages:
        return f"the image and the real node need these Debian packages: {' '.join(packages)}"
    return ""


def _exists(path: str) -> bool:
    return Path(path).exists() if path.startswith("/") else shutil.which(path) is not None


def main() -> int:
    """Print missing requirements; return the exit status."""
    missing = missing_for_a_node()
    if missing:
        sys.stderr.write(f"test bed: {missing}; tests/node is skipped\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
