"""Data path and kernels are compiled where `make test-compiled` runs the tests, and only there."""

import os
from pathlib import Path

import pytest

from scheduler import histograms
from scheduler.dispatch import dispatcher
from scheduler.gateway.serving import runtime
from scheduler.oip import batch
from scheduler.placement import fragmentation_kernels, kernels
from scheduler.search.frontiers import frontier_kernels, reduction_kernels


@pytest.mark.parametrize(
    "module",
    [
        batch, dispatcher, histograms, runtime,
        fragmentation_kernels, frontier_kernels, kernels, reduction_kernels,
    ],
)  # fmt: skip
def test_a_module_is_compiled_where_it_should_be(module):
    """No test runs by accident on the other form."""
    is_wanted = os.environ.get("PYTHONPATH", "").endswith("build/compiled")
    assert (Path(module.__file__).suffix == ".so") == is_wanted
