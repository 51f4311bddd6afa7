"""Rows of the nodes on which a function is warm, kept between calls, against a new look-up."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.node import Gpu, Node
from scheduler.model.pod import function_pod
from scheduler.planning.metrics import Metrics
from scheduler.planning.state import State
from scheduler.planning.warm_rows import WarmRows
from scheduler.settings import Settings
from tests.examples import examples
from tests.extender.factories import pod

NODES = ["n0", "n1", "n2"]
KEEP_ALIVE_S = 600.0


def node(name: str, gpus: int) -> Node:
    uuids = [f"GPU-{name}-{index}" for index in range(gpus)]
    return Node(
        name,
        tuple(
            Gpu(index=i, uuid=u, model="A", memory_mib=8_000, multiprocessors=1, healthy=True)
            for i, u in enumerate(uuids)
        ),
        1_000,
    )


@examples(200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.sampled_from([*NODES, "gone"]), st.integers(0, 2)),
            st.tuples(st.just("end"), st.sampled_from(NODES), st.integers(0, 2)),
            st.tuples(st.just("set"), st.sampled_from(NODES), st.integers(0, 3)),
            st.tuples(st.just("remove"), st.sampled_from(NODES), st.just(0)),
            st.tuples(st.just("wait"), st.just(""), st.just(0)),
        ),
        max_size=12,
    )
)
def test_rows_follow_pods_nodes_and_time(steps):
    """After any change of pods, nodes and time the rows are those of the nodes warm now."""
    state = State(Settings(keep_alive_s=KEEP_ALIVE_S), Metrics())
    now_s, running, ran_s = 0.0, {}, {}
    for action, name, number in steps:
        now_s += 1.0
        if action == "run":
            raw = pod(function="f")
            raw["spec"]["nodeName"] = name
            raw["metadata"]["uid"] = f"{name}-{number}"
            state.tracker.observe(raw, function_pod(raw), "f", now_s, live=True)
            running[raw["metadata"]["uid"]] = name
            ran_s[name] = now_s
        elif action == "end":
            state.tracker.remove(f"{name}-{number}", now_s)
            if running.pop(f"{name}-{number}", None):
                ran_s[name] = now_s
        elif action == "set":
            state.ledger.set_node(node(name, number))
        elif action == "remove":
            state.ledger.remove_node(name)
        else:
            now_s += KEEP_ALIVE_S / 2
            state.tracker.expire(now_s)
        fleet = state.ledger.fleet
        rows = state.warm_rows(function_pod(pod(function="f")))
        fresh = WarmRows.of(fleet, state.history.warm_nodes("default", "f"))
        np.testing.assert_array_equal(fresh.is_warm, rows.is_warm)
        np.testing.assert_array_equal(fresh.gpu_ready_ms, rows.gpu_ready_ms)
        assert not rows.is_warm[-1]
        if action == "wait":  # what is cold ends at the next look
            ran_s = {
                n: at_s
                for n, at_s in ran_s.items()
                if n in running.values() or now_s - at_s <= KEEP_ALIVE_S
            }
        assert rows.names == set(ran_s)
        known = fleet.node_row.keys() & ran_s.keys()
        assert sorted(fleet.node_row[n] for n in known) == np.flatnonzero(rows.is_warm).tolist()
