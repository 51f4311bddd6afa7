"""What the machine must have for the image and the real node, and what of it is missing.

The list of Debian packages is `debian-packages.txt`; `.ci/run` installs from the same.

    python -m tests.testbed.machine_needs   # ends with 1 where something is missing, and says what
"""

import os
import shutil
import sys
from pathlib import Path

PACKAGES = Path(__file__).with_name("debian-packages.txt")


def missing_packages(purpose: str) -> list[str]:
    """The Debian packages listed for the purpose whose program or file is not here."""
    lines = PACKAGES.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [package for package, brings, use in rows if use == purpose and not _is_here(brings)]


def missing_for_a_node() -> str:
    """In one line, why no image is built and no real node is started here; empty where it can be.

    A C compiler counts too: the node's pause program and its NVML are made with it.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "the image and the real node need Linux and root"
    if shutil.which("go") is None:
        return "the real node needs Go 1.26 or later on the PATH: it builds Kubernetes itself"
    packages = missing_packages("node") + missing_packages("agent")
    if packages:
        return f"the image and the real node need what these packages bring: {' '.join(packages)}"
    return ""


def _is_here(brings: str) -> bool:
    return Path(brings).exists() if brings.startswith("/") else shutil.which(brings) is not None


def main() -> int:
    """Say what is missing, if anything is; the exit status."""
    lacking = missing_for_a_node()
    if lacking:
        sys.stderr.write(f"test bed: {lacking}; the tests of tests/node are left out\n")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
