"""Fixtures of the room."""

import pytest

from tests.slo.histories import ClusterHistory


@pytest.fixture
def history():
    return ClusterHistory()
