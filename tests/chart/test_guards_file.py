"""deploy/guards.yaml, for installations without Helm: it is what the chart renders."""

import pytest

from tests.chart import guards_file


@pytest.mark.usefixtures("helm_built")
def test_the_file_is_the_charts() -> None:
    """`make guards` renders it."""
    assert guards_file.PATH.read_text(encoding="utf-8") == guards_file.text()
