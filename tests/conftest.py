"""Settings and fixtures of all tests: no verdict depends on the speed of the machine."""

import pytest
import structlog.testing
from hypothesis import HealthCheck, settings

E2E_TIMEOUT_S = 1800
"""A control plane on two busy cores may take minutes for what takes seconds on idle ones."""

settings.register_profile(
    "any-speed", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-speed")


@pytest.hookimpl(trylast=True)  # after the folders' own hooks have given their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that need a control plane more time before they count as hanging."""
    for item in items:
        if item.get_closest_marker("e2e") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(E2E_TIMEOUT_S))


@pytest.fixture
def logged():
    """Capture structlog's entries."""
    with structlog.testing.capture_logs() as entries:
        yield entries
