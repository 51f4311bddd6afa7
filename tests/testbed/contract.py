"""Decoding of the extender's answers by kube-scheduler's own Go types.

python -m tests.testbed.contract      # writes tests/contract/golden/ again
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

from tests.testbed import REPOSITORY, binaries

GOLDEN = REPOSITORY / "tests" / "contract" / "golden"
"""`request-*.json` and `answer-*.json`, written by the Go program; committed."""

Kind = Literal[
    "ExtenderFilterResult",
    "HostPriorityList",
    "ExtenderBindingResult",
    "ExtenderPreemptionResult",
]


class NotDecodedError(ValueError):
    """Go cannot decode the answer, or one of its keys belongs to no field."""


def decode(kind: Kind, answer: bytes) -> Any:
    """Decode the answer and encode it again, both with Go.

    Go accepts a key in any case: compare the result with the input to check the case of every key.

    Raises:
        NotDecodedError: Go's reason.
        GoMissingError, BuildFailedError: see `binaries`.
    """
    done = subprocess.run(
        [binaries.build(["contract"])["contract"], "decode", kind],
        input=answer,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise NotDecodedError(done.stderr.decode().strip())
    return json.loads(done.stdout)


def write_golden(folder: Path) -> None:
    """Write all golden files to `folder`; the output is reproducible byte for byte."""
    subprocess.run([binaries.build(["contract"])["contract"], "requests", folder], check=True)


if __name__ == "__main__":
    write_golden(GOLDEN)
    sys.stderr.write(f"test bed: wrote {GOLDEN.relative_to(REPOSITORY)}\n")
