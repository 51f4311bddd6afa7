"""What holds for all tests."""

import pytest

E2E_TIMEOUT_S = 600
"""A control plane on two busy cores may take minutes for what takes seconds on idle ones."""


@pytest.hookimpl(trylast=True)  # after the folders' own hooks have given their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that need a control plane more time before they count as hanging."""
    for item in items:
        if item.get_closest_marker("e2e") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(E2E_TIMEOUT_S))
