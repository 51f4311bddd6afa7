"""The data path is compiled where `make test-compiled` runs the tests, and nowhere else."""

import os
from pathlib import Path

import pytest

from scheduler import histograms
from scheduler.dispatch import dispatcher
from scheduler.gateway import runtime
from scheduler.oip import batch


@pytest.mark.parametrize("module", [batch, dispatcher, histograms, runtime])
def test_the_data_path_is_compiled_where_it_should_be(module):
    """No test runs by accident on the other form."""
    is_wanted = os.environ.get("PYTHONPATH", "").endswith("build/compiled")
    assert (Path(module.__file__).suffix == ".so") == is_wanted
