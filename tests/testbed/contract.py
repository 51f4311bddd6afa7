"""Asks the real Go types of kube-scheduler what they make of an answer of ours.

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
    """Go did not decode the answer, or a key in it belongs to no field."""


def decode(kind: Kind, answer: bytes) -> Any:
    """The answer as Go holds it after decoding, encoded again by Go.

    Go accepts a key in any case; compare the result with what was sent to see that every key was
    written as Go writes it.

    Raises:
        NotDecodedError: with Go's reason.
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
    """Write all golden files to `folder`; the same bytes each time."""
    subprocess.run([binaries.build(["contract"])["contract"], "requests", folder], check=True)


if __name__ == "__main__":
    write_golden(GOLDEN)
    sys.stderr.write(f"test bed: wrote {GOLDEN.relative_to(REPOSITORY)}\n")
