"""The gateway in the campaign: its runs repeat, and a check that is removed from it is found."""

from unittest import mock

import pytest

from scheduler.gateway.replicas.shard_lease import ShardLease
from tests.campaign.gateway_documents import GATEWAYS
from tests.campaign.gateway_incidents import EVERY, has_gateways
from tests.campaign.incidents import Incident
from tests.campaign.run import run_incidents, run_seed

# Seeds whose failures were mended: a pod that was not ready any more stayed (40); the rate of
# arrivals failed after a pause (50) and after a shard came back (230); a timer repeated without end
# (90); an answer at a hand-over was not counted (220).
FOUND_ONCE = (40, 50, 90, 220, 230)


def owner_without_network():
    """Return requests to both replicas while the owner of the namespace cannot renew its Lease."""
    requests = [
        Incident(
            10.0 + 0.25 * number,
            "infer",
            {
                "number": number,
                "replica": GATEWAYS[number % 2],
                "rows": 1,
                "limit_s": 20.0,
                "is_told": True,
            },
        )
        for number in range(80)
    ]
    fault = Incident(15.1, "unreachable", {"replica": "g2", "seconds": 15.0})
    return sorted([*requests, fault], key=lambda incident: incident.at_s)


def hold_without_end(self, _now_s):
    """Own a shard as long as the last record that was seen names this replica."""
    return self._valid_until_s > 0 and self.record.holder == self._member


def test_a_gateway_is_in_one_of_ten_runs():
    """So that ten thousand runs remain affordable."""
    assert sum(map(has_gateways, range(60_000, 61_000))) == 1_000 // EVERY


@pytest.mark.slow
def test_an_owner_without_network_stops_in_time():
    """Another replica dispatches once the Lease has expired, and no pod has two dispatchers."""
    assert not run_incidents(0, owner_without_network()).failed


@pytest.mark.slow
def test_a_lease_that_never_expires_is_found():
    """Without the check of the time, two replicas have batches on one pod."""
    with mock.patch.object(ShardLease, "owns", hold_without_end):
        verdict = run_incidents(0, owner_without_network())
    assert any("two dispatchers" in problem for problem in verdict.problems)


@pytest.mark.slow
def test_a_batch_that_a_hand_over_cuts_still_runs():
    """The new owner waits for it: a model server does not see that a connection was closed."""
    assert not run_seed(60510, active=2).failed


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND_ONCE)
def test_what_failed_once_in_a_gateway_does_not_fail_again(seed):
    """A seed whose failure was mended passes, and repeats itself."""
    verdict = run_seed(seed)
    assert not verdict.failed
    assert run_seed(seed) == verdict
