"""Data of others, which are not in this repository."""

import os
from pathlib import Path

from tests.require import needing

DATA = Path(os.environ.get("ESG_TEST_DATA") or Path(__file__).parents[3].parent / "shared" / "data")
needs_data = needing(
    (DATA / "training").is_dir(),
    f"no {DATA}/training; name the folder with traces of others in ESG_TEST_DATA",
)
