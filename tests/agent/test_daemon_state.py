"""The state file of an MPS daemon: written, read, and outdated."""

import stat

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from scheduler.agent.mps.clients import ClientReport
from scheduler.agent.mps.daemon_state import DaemonState, read_state, trouble_of, write_state
from tests.agent.fakes import Clock

COUNTS = st.integers(0, 10**6)
STATES = st.builds(
    DaemonState,
    st.sampled_from(["starting", "ready", "unhealthy", "stopped"]),
    st.text(),
    st.integers(0, 10**6),
    st.builds(ClientReport, COUNTS, COUNTS, COUNTS, st.dictionaries(st.text(), COUNTS), COUNTS),
)


@given(STATES)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(tmp_path, state):
    """The file is complete, and no other file remains."""
    clock = Clock()
    write_state(tmp_path / "GPU-1", state, clock=clock)
    clock.now_s += 4.9
    assert read_state(tmp_path / "GPU-1", clock=clock, silent_after_s=5) == state
    assert [path.name for path in (tmp_path / "GPU-1").iterdir()] == ["state.json"]


def test_only_a_ready_daemon_has_no_trouble():
    """Every other phase is a trouble, with its reason if any."""
    assert trouble_of(DaemonState("ready", restarts=3)) == ""
    assert trouble_of(DaemonState("starting")) == "MPS daemon is starting"
    assert trouble_of(DaemonState("unhealthy", "it is in state FAULT")) == "it is in state FAULT"
    assert trouble_of(DaemonState("stopped", "`esg mps` was stopped"))


@pytest.mark.parametrize("seconds", [5.1, -1])
def test_outdated_state(tmp_path, seconds):
    """The supervisor is dead, or the state is from before the machine's restart."""
    clock = Clock()
    write_state(tmp_path, DaemonState("ready", restarts=2), clock=clock)
    clock.now_s += seconds
    state = read_state(tmp_path, clock=clock, silent_after_s=5)
    assert (state.phase, state.restarts) == ("unhealthy", 2)
    assert "does not run" in trouble_of(state)


def test_missing_state(tmp_path):
    """The trouble names the missing file."""
    trouble = trouble_of(read_state(tmp_path / "GPU-1", clock=Clock(), silent_after_s=5))
    assert str(tmp_path / "GPU-1" / "state.json") in trouble


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"\xff", b"[]", b'{"phase": "fine", "trouble": "", "restarts": 0, "at_s": 1}'],
)
def test_invalid_state(tmp_path, text):
    """The trouble says that the file cannot be read."""
    (tmp_path / "state.json").write_bytes(text)
    assert "cannot be read" in trouble_of(read_state(tmp_path, clock=Clock(), silent_after_s=5))


def test_state_is_readable_by_all_users(tmp_path):
    """The agent need not be root."""
    write_state(tmp_path / "GPU-1", DaemonState("ready"), clock=Clock())
    mode = (tmp_path / "GPU-1" / "state.json").stat().st_mode
    assert mode & stat.S_IROTH
