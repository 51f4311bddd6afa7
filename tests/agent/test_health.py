"""Health problems of a GPU, and harmless errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.agent.gpus.health import CONTAINED_XIDS, health_problem, shareable
from scheduler.agent.settings import APPLICATION_XIDS, AgentSettings
from scheduler.settings import Settings
from tests.agent.factories import device, settings

APPLICATION = {int(xid) for xid in APPLICATION_XIDS.split(",")}
WITHOUT_CONTAINMENT = {"compute_capability": (8, 6)}


def problem_of(xids=(), mps_trouble="", *, agent_settings=None, **overrides):
    return health_problem(device(**overrides), xids, mps_trouble, agent_settings or settings())


def test_healthy_gpu():
    """It has no problem, and unknown values are not problems."""
    assert problem_of() is None
    assert problem_of(ecc_uncorrected=None) is None


@pytest.mark.parametrize(
    ("overrides", "reason", "expected"),
    [
        ({"mig": True}, "mig", "MIG is on"),
        ({"compute_capability": (6, 1)}, "unsupported", "compute capability 6.1"),
        ({"multiprocessors": None}, "unsupported", "multiprocessors"),
        ({"ecc_uncorrected": 2, **WITHOUT_CONTAINMENT}, "ecc", "2 uncorrected ECC errors"),
        ({"memory_failed": True}, "memory", "no spare rows"),
        (
            {"reset_due": "row remapping", **WITHOUT_CONTAINMENT},
            "memory",
            "row remapping is pending",
        ),
        ({"reset_due": "page retirement"}, "memory", "page retirement is pending"),
        (
            {"xids": (79,)},
            "xid",
            "XID 79: end the containers agent and mps on the node, then",
        ),
        ({"xids": (95, 31, 119)}, "xid", "XID 95, 119"),
        ({"xids": (48, 63), **WITHOUT_CONTAINMENT}, "xid", "XID 48, 63"),
        ({"mps_trouble": "its daemon is dead"}, "mps", "its daemon is dead"),
    ],
)
def test_each_fault_has_its_reason(overrides, reason, expected):
    """A code for the metric and a message for people."""
    problem = problem_of(**overrides)
    assert problem.reason == reason
    assert expected in problem.message


@given(st.sets(st.integers(1, 200)))
def test_errors_of_an_application_are_harmless(xids):
    """Exactly the other XIDs are problems."""
    assert (problem_of(xids=xids, **WITHOUT_CONTAINMENT) is None) == (xids <= APPLICATION)
    assert (problem_of(xids=xids) is None) == (xids <= APPLICATION | CONTAINED_XIDS)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_contained_memory_errors_leave_the_gpu_usable(capability):
    """A100 and H100 end only the process that is hit, and use the page no more until a reset."""
    error = {"ecc_uncorrected": 1, "reset_due": "row remapping", "compute_capability": capability}
    assert problem_of(xids=(48, 63, 94), **error) is None
    assert problem_of(xids=(48, 95), **error).reason == "xid"
    assert problem_of(memory_failed=True, **error).reason == "memory"


def test_limits_are_settings():
    """Ignored XIDs and the number of ECC errors can be set."""
    lenient = settings(xids_ignored="79", ecc_uncorrected_max=3)
    errors = {"ecc_uncorrected": 3, **WITHOUT_CONTAINMENT}
    assert problem_of((79,), agent_settings=lenient, **errors) is None
    assert problem_of((31,), agent_settings=lenient).reason == "xid"
    assert problem_of((31,), agent_settings=settings(xids_ignored="")).reason == "xid"


def test_only_whole_gpus_from_volta_on_get_a_daemon():
    """An unhealthy one gets a daemon, too: it may recover."""
    assert shareable(device(ecc_uncorrected=5))
    assert not shareable(device(mig=True))
    assert not shareable(device(compute_capability=(6, 0)))


def test_agent_and_webhook_have_the_same_default_folder():
    """A pod mounts the daemons' folder by default."""
    agent, webhook = AgentSettings.model_fields["mps_root"], Settings.model_fields["mps_root"]
    assert agent.default == webhook.default
