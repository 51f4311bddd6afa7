"""What `esg mps` and `esg agent` tell each other, and that silence says something too."""

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from scheduler.agent.daemon_state import DaemonState, read_state, trouble_of, write_state
from tests.agent.readings import Clock

STATES = st.builds(
    DaemonState,
    st.sampled_from(["starting", "ready", "ill", "stopped"]),
    st.text(),
    st.integers(0, 10**6),
)


@given(STATES)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read(tmp_path: Path, state: DaemonState):
    """Whole, and nothing else lies about afterwards."""
    clock = Clock()
    write_state(tmp_path / "GPU-1", state, clock=clock)
    clock.now += 4.9
    assert read_state(tmp_path / "GPU-1", clock=clock, silent_after_s=5) == state
    assert [path.name for path in (tmp_path / "GPU-1").iterdir()] == ["state.json"]


def test_only_a_daemon_that_answers_is_no_trouble():
    """Every other phase is one, with its reason where there is any."""
    assert trouble_of(DaemonState("ready", restarts=3)) == ""
    assert trouble_of(DaemonState("starting")) == "its MPS daemon is starting"
    assert trouble_of(DaemonState("ill", "it is in state FAULT")) == "it is in state FAULT"
    assert trouble_of(DaemonState("stopped", "`esg mps` was stopped"))


@pytest.mark.parametrize("seconds", [5.1, -1])
def test_an_old_state_says_that_nobody_keeps_the_daemon(tmp_path: Path, seconds):
    """Nor does one from before the machine was started again, whose clock ran further."""
    clock = Clock()
    write_state(tmp_path, DaemonState("ready", restarts=2), clock=clock)
    clock.now += seconds
    state = read_state(tmp_path, clock=clock, silent_after_s=5)
    assert (state.phase, state.restarts) == ("ill", 2)
    assert "dead" in trouble_of(state)


def test_no_state_says_that_esg_mps_does_not_run(tmp_path: Path):
    """The file that is missing is named."""
    trouble = trouble_of(read_state(tmp_path / "GPU-1", clock=Clock(), silent_after_s=5))
    assert str(tmp_path / "GPU-1" / "state.json") in trouble


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"\xff", b"[]", b'{"phase": "fine", "trouble": "", "restarts": 0, "at": 1}'],
)
def test_what_esg_mps_does_not_write_is_no_state(tmp_path: Path, text):
    """Whoever wrote it."""
    (tmp_path / "state.json").write_bytes(text)
    assert "cannot be read" in trouble_of(read_state(tmp_path, clock=Clock(), silent_after_s=5))


def test_a_state_may_be_read_by_everybody(tmp_path: Path):
    """The agent need not be root."""
    write_state(tmp_path / "GPU-1", DaemonState("ready"), clock=Clock())
    mode = (tmp_path / "GPU-1" / "state.json").stat().st_mode
    assert mode & stat.S_IROTH
