"""Ownership of shards: one dispatcher at a time, always, and one again soon after a loss."""

from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.gateway.replicas.shard_lease import LeaseTimes
from scheduler.gateway.replicas.shards import SHARDS, preference, shard_of
from tests.gateway.lease_world import LATE_S, PAUSE_S, World

TIMES = LeaseTimes()
FAIL_OVER_S = TIMES.lease_s + TIMES.renew_s
SEEDS = st.integers(0, 2**32)
NAMES = ["a", "b", "c"]


def settled(world):
    """The owner of each shard, after all hand-overs."""
    world.run(12)
    owners = world.owners()
    assert len(owners) == SHARDS
    return {shard: names[0] for shard, names in owners.items()}


@given(seed=SEEDS, drift=st.floats(0, 0.05), crashes=st.integers(0, 4))
def test_a_shard_never_has_two_owners(seed, drift, crashes):
    """Drifting clocks, pauses, losses and late requests never give a shard a second dispatcher."""
    world = World(seed, NAMES, drift, faulty=True)
    world.run(20)
    for number in range(crashes):
        victim = world.random.choice(sorted(world.replicas))
        if world.random.random() < 0.5:
            world.leave(victim)
            world.run(world.random.uniform(0, 5))
        world.kill(victim)
        world.run(world.random.uniform(0, 5))
        # A restarted container has its pod's name.
        world.start(victim if world.random.random() < 0.5 else f"new-{number}")
        world.run(20)


@given(seed=SEEDS)
@example(seed=2107)  # a late hand-over is under way after 26 s
def test_faults_end_and_every_shard_has_an_owner(seed):
    """After any faults, all shards are owned again without help, if not during a hand-over."""
    world = World(seed, NAMES, 0.05, faulty=True)
    world.run(12)
    world.faulty = False
    world.run(PAUSE_S + LATE_S)  # until the last pause is over, and the last late request
    world.run(12)
    if len(world.owners()) < SHARDS:
        world.run(TIMES.renew_s)
    assert len(world.owners()) == SHARDS


@given(seed=SEEDS, names=st.sets(st.sampled_from("abcdef"), min_size=1))
def test_the_preferred_replica_owns_a_shard(seed, names):
    """Without faults, each shard goes to the replica that is preferred for it."""
    world = World(seed, sorted(names))
    expected = {shard: preference(shard, frozenset(names))[0] for shard in range(SHARDS)}
    assert settled(world) == expected


@given(seed=SEEDS, drift=st.floats(0, 0.01), when_s=st.floats(0, 2))
def test_shards_of_a_dead_replica_have_an_owner_soon(seed, drift, when_s):
    """After a death, its shards are owned within a lease and a renewal; the others never stop."""
    world = World(seed, NAMES, drift)
    before = settled(world)
    world.run(when_s)
    world.kill("a")
    end_s = world.now_s + FAIL_OVER_S
    unaffected = {shard for shard, name in before.items() if name != "a"}
    while world.now_s < end_s:
        world.run(0.05)
        assert unaffected <= world.owners().keys()
    assert len(world.owners()) == SHARDS


@given(seed=SEEDS, when_s=st.floats(0, 2))
def test_a_replica_that_leaves_hands_over_at_once(seed, when_s):
    """A leaving replica's shards have new owners at once, and stay there while its pod is ready."""
    world = World(seed, NAMES)
    settled(world)
    world.run(when_s)
    world.leave("b")
    world.run(1.0)
    for _ in range(40):
        owners = world.owners()
        assert len(owners) == SHARDS
        assert all(names != ["b"] for names in owners.values())
        world.run(0.25)


@given(seed=SEEDS)
def test_the_last_replica_leaves_free_leases(seed):
    """A replica without a successor frees its leases, and a later one takes them at once."""
    world = World(seed, ["a"])
    settled(world)
    world.leave("a")
    world.run(1.0)
    assert {record.holder for record in world.server.records.values()} == {""}
    assert world.owners() == {}
    world.kill("a")
    world.start("b")
    world.run(0.5)
    assert len(world.owners()) == SHARDS


@given(seed=SEEDS)
def test_a_hand_over_is_clean_and_a_loss_is_not(seed):
    """An owner knows whether runs of the one before it can still be on the pods."""
    world = World(seed, ["a", "b"])
    before = settled(world)
    leases = world.replicas["a"].ownership.leases
    lost = [shard for shard, name in before.items() if name == "b"]
    world.leave("b")
    world.run(1.0)
    assert all(leases[shard].is_clean for shard in lost)
    world.kill("b")
    world.start("c")
    after = settled(world)
    of_c = [shard for shard, name in after.items() if name == "c"]
    world.kill("c")
    world.run(FAIL_OVER_S)
    assert of_c
    assert not any(leases[shard].is_clean for shard in of_c)


@given(namespaces=st.sets(st.text(min_size=1), min_size=1))
def test_a_joining_replica_moves_shards_only_to_itself(namespaces):
    """Each namespace has one shard; another member changes the preference only to itself."""
    for namespace in namespaces:
        shard = shard_of(namespace)
        assert 0 <= shard < SHARDS
        first = preference(shard, frozenset(NAMES))[0]
        assert preference(shard, frozenset([*NAMES, "d"]))[0] in {first, "d"}
