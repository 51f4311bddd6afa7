"""The owner's Lease: one holder at a time, whatever answers are lost and whatever clocks run."""

import asyncio
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from scheduler.cluster.errors import ApiError, ApiTimeoutError, ClusterError
from scheduler.cluster.leases import LeaseClient
from scheduler.cluster.owner_lease import LEASE_LABELS, OwnerLease
from tests.virtual_loop import run_virtually
from workbench.cluster.api_requests import KINDS, ApiRequests, ApiTarget
from workbench.cluster.object_store import ObjectStore, StatusError


class LossyApi:
    """Requests that are lost, stored without an answer, or stored late."""

    def __init__(self, requests, random):
        self._requests = requests
        self._random = random
        self.late = []

    async def get(self, path, *, timeout_s=None):
        return self._answer("GET", path, {})

    async def post(self, path, body, *, timeout_s=None):
        return await self._write("POST", path, body)

    async def patch(self, path, body, *, timeout_s=None):
        return await self._write("PATCH", path, body)

    async def _write(self, method, path, body):
        fate = self._random.choice(("answered",) * 6 + ("lost", "unanswered", "late"))
        if fate == "late":
            self.late.append(lambda: self._answer(method, path, body))
        if fate in ("answered", "unanswered"):
            answer = self._answer(method, path, body)
        if fate != "answered":
            raise ApiTimeoutError("no answer", sent=True)
        return answer

    def _answer(self, method, path, body):
        try:
            return self._requests.object(method, ApiTarget.parse(path), body)
        except StatusError as error:
            raise ApiError(error.status, error.reason, str(error)) from None


@pytest.mark.parametrize("seed", range(40))
def test_one_process_holds_it_at_a_time(seed):  # noqa: C901 - the steps of one run
    """Clocks run up to 1.4 times as fast as others; writes are lost, or arrive late."""
    random = Random(seed)
    now_s = 0.0
    api = LossyApi(ApiRequests(ObjectStore(KINDS)), random)

    def lease(rate):
        client = LeaseClient(api, "esg", LEASE_LABELS)
        return OwnerLease(client, clock=lambda: now_s * rate)

    leases = [lease(0.85), lease(1.0), lease(1.19)]
    holders = []  # in order, each with its chain

    async def step(owner_lease):
        with suppress(ClusterError):
            if random.random() < 0.1:
                await owner_lease.release()
            elif random.random() < 0.5:
                await owner_lease.observe()
            elif await owner_lease.acquire():
                holders.append((leases.index(owner_lease), owner_lease.chain))

    async def run():
        nonlocal now_s
        for _ in range(400):
            now_s += random.choice((0.1, 1.0, 5.0))
            if api.late and random.random() < 0.2:
                with suppress(ClusterError):
                    api.late.pop()()
            await step(random.choice(leases))
            assert sum(owner_lease.is_valid() for owner_lease in leases) <= 1

    run_virtually(run())
    for index in range(len(leases)):
        mine = [position for position, (owner, _) in enumerate(holders) if owner == index]
        for first, second in pairwise(mine):
            if holders[first][1] == holders[second][1]:
                assert second == first + 1
    assert len({owner for owner, _ in holders}) == 3


def test_a_lease_that_was_deleted_begins_a_new_chain():
    """Another process may have held it meanwhile."""
    store = ObjectStore(KINDS)
    random = Random(0)
    random.choice = lambda fates: fates[0]
    lease = OwnerLease(
        LeaseClient(LossyApi(ApiRequests(store), random), "esg", {}), clock=lambda: 0.0
    )

    async def run():
        assert await lease.acquire()
        chain = lease.chain
        assert await lease.acquire()
        assert lease.chain == chain
        path = "/apis/coordination.k8s.io/v1/leases"
        store.delete(path, ("esg", "esg-scheduler-gpus"))
        assert await lease.acquire()
        assert lease.chain != chain

    asyncio.run(run())
