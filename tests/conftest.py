"""Settings and fixtures of all tests: no verdict depends on the speed of the machine."""

import gc
import os
import sys
from collections.abc import Sequence
from functools import cache

import pytest
import structlog.testing
from hypothesis import HealthCheck, settings

E2E_TIMEOUT_S = 1800
"""A control plane on two busy cores may take minutes for what takes seconds on idle ones."""

QUICK = "quick"
"""Hypothesis profile of `make check`: a tenth of the examples."""

SETTINGS = "_hypothesis_internal_use_settings"
"""Attribute in which Hypothesis keeps a test's own settings."""

# Matrices of tests are small: threads of linear algebra only wait for one another, in children too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported

settings.register_profile(
    "any-speed", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-speed")
settings.register_profile(QUICK, parent=settings(), max_examples=10)


gc.disable()  # until all modules are imported: they are many objects without garbage


def pytest_collection_finish():
    """Leave modules and test items out of the collections during tests."""
    _build_command_lines_once()
    gc.freeze()
    gc.enable()


def _build_command_lines_once():
    """Let the runner build the commands of `esg` at its first call instead of at each one."""
    if (testing := sys.modules.get("typer.testing")) is not None:
        testing._get_command = cache(testing._get_command)


@pytest.hookimpl(trylast=True)  # after the folders' own hooks have given their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that need a control plane more time before they count as hanging."""
    for item in items:
        if item.get_closest_marker("e2e") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(E2E_TIMEOUT_S))
    if config.getoption("--hypothesis-profile") == QUICK:
        _limit_examples(items)


def _limit_examples(items: Sequence[pytest.Item]) -> None:
    """Limit the examples of tests with settings of their own, which override the profile's."""
    limit = settings().max_examples
    for function in {item.function for item in items if isinstance(item, pytest.Function)}:
        own = getattr(function, SETTINGS, None)
        if own is not None and own.max_examples > limit:
            setattr(function, SETTINGS, settings(own, max_examples=limit))


@pytest.fixture
def loopback_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect to played servers without the environment's proxy and authorities.

    Loading the authorities of the system takes 30 ms for each client, also for one of plain HTTP.
    """
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)


@pytest.fixture
def logged():
    """Capture structlog's entries."""
    with structlog.testing.capture_logs() as entries:
        yield entries
