"""What makes a GPU ill, and what does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.agent.health import illness, shareable
from scheduler.agent.settings import APPLICATION_XIDS, AgentSettings
from scheduler.settings import Settings
from tests.agent.readings import device, settings

APPLICATION = {int(xid) for xid in APPLICATION_XIDS.split(",")}


def judge(xids=(), mps_trouble="", *, given_settings=None, **differing):
    return illness(device(**differing), xids, mps_trouble, given_settings or settings())


def test_a_sound_gpu_is_well():
    """Nothing is wrong, and what NVML does not tell is not held against it."""
    assert judge() is None
    assert judge(ecc_uncorrected=None) is None


@pytest.mark.parametrize(
    ("differing", "reason", "says"),
    [
        ({"mig": True}, "mig", "MIG is on"),
        ({"compute_capability": (6, 1)}, "unsupported", "compute capability 6.1"),
        ({"multiprocessors": None}, "unsupported", "multiprocessors"),
        ({"ecc_uncorrected": 2}, "ecc", "2 uncorrected ECC errors"),
        ({"memory_failed": True}, "memory", "no spare rows"),
        ({"reset_due": "row remapping"}, "memory", "row remapping is pending"),
        ({"xids": (79,)}, "xid", "XID 79: reset the GPU, with the containers agent and mps on"),
        ({"xids": (48, 31, 119)}, "xid", "XID 48, 119"),
        ({"mps_trouble": "its daemon is dead"}, "mps", "its daemon is dead"),
    ],
)
def test_each_fault_has_its_reason(differing, reason, says):
    """A word for the metric and a sentence for people."""
    found = judge(**differing)
    assert found.reason == reason
    assert says in found.message


@given(st.sets(st.integers(1, 200)))
def test_errors_of_an_application_make_no_gpu_ill(xids):
    """Exactly the others do."""
    assert (judge(xids=xids) is None) == (xids <= APPLICATION)


def test_what_counts_is_a_setting():
    """XIDs to ignore, and how many ECC errors are borne."""
    lenient = settings(xids_ignored="79", ecc_uncorrected_max=3)
    assert judge((79,), given_settings=lenient, ecc_uncorrected=3) is None
    assert judge((31,), given_settings=lenient).reason == "xid"
    assert judge((31,), given_settings=settings(xids_ignored="")).reason == "xid"


def test_only_whole_gpus_from_volta_on_get_a_daemon():
    """An ill one does too: it may recover."""
    assert shareable(device(ecc_uncorrected=5))
    assert not shareable(device(mig=True))
    assert not shareable(device(compute_capability=(6, 0)))


def test_agent_and_webhook_mean_the_same_folder():
    """A pod mounts what the daemons use, if nobody says otherwise."""
    mine, theirs = AgentSettings.model_fields["mps_root"], Settings.model_fields["mps_root"]
    assert mine.default == theirs.default
