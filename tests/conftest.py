"""Settings and fixtures of all tests: no verdict depends on the speed of the machine."""

import gc
import os
import signal

import pytest
import structlog.testing
from hypothesis import HealthCheck, settings

from tests.data_of_others import check_data
from tests.examples import USUAL

E2E_TIMEOUT_S = 1800
"""A control plane on two busy cores may take minutes for what takes seconds on idle ones."""

# Matrices of tests are small: threads of linear algebra only wait for one another, in children too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported
# As in the product's processes: gRPC may crash the children of a test that runs on uvloop.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

settings.register_profile(
    "any-speed", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-speed")
settings.register_profile("quick", parent=settings(), max_examples=USUAL // 10)  # of `make check`


gc.disable()  # until all modules are imported: they are many objects without garbage


def pytest_configure():
    """Report a wrong setting once instead of in each test that needs it.

    A shell's background job ignores SIGINT, and so would each program to which a test sends Ctrl-C.
    """
    check_data()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Leave modules and test items out of the collections during tests."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # a test makes many objects and little garbage
    gc.enable()


@pytest.hookimpl(trylast=True)  # after the folders' own hooks have given their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that need a control plane more time before they count as hanging."""
    for item in items:
        if item.get_closest_marker("e2e") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(E2E_TIMEOUT_S))


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


@pytest.fixture
def wide_terminal(monkeypatch):
    """Make the terminal wide enough for every table."""
    monkeypatch.setenv("COLUMNS", "200")
