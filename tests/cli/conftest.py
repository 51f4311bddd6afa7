"""Fixtures of the commands' tests."""

import pytest


@pytest.fixture
def wide_terminal(monkeypatch):
    """Make the terminal wide enough for every table."""
    monkeypatch.setenv("COLUMNS", "200")
