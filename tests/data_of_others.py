"""Data of others, which are not in this repository: the variable ESG_DATA names their folder."""

import os
from pathlib import Path

import pytest

VARIABLE = "ESG_DATA"
DATA = Path(os.environ.get(VARIABLE, ""))

needs_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no folder with data of others"
)
"""Mark of a test on them; elsewhere it is left out, under CI too."""


def check_data() -> None:
    """Raise an error if the variable names a folder that does not exist."""
    if not DATA.is_dir():
        raise pytest.UsageError(
            f"{VARIABLE}={DATA}: no such folder; name one with data of others, or unset it"
        )
