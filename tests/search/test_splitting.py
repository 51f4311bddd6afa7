"""Each stage's part of the SLO by dominators and ANL, and the groups that stages are planned in."""

from functools import cache
from itertools import combinations, pairwise
from math import isclose

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.search.dag import Dag
from scheduler.search.splitting import ROOT, groups, immediate_dominators, split
from tests.search.documents import CHAIN, N_SHAPE, dags

Shape = list[list[int]]

quick = settings(max_examples=150, deadline=None)
DIAMOND = ((), (0,), (0,), (1, 2))
STAGES_MAX = 32
LENGTHS = st.lists(  # more apart than one microsecond is from one hour
    st.floats(1e-10, 1.0), min_size=STAGES_MAX, max_size=STAGES_MAX
)


@st.composite
def wide_dags(draw: st.DrawFn) -> Shape:
    """DAGs of up to 32 stages, sparse ones too, so that runs, forks and entries are many."""
    ways_in = draw(st.integers(0, 4))
    count = draw(st.integers(1, STAGES_MAX))
    return [
        sorted(draw(st.sets(st.integers(0, v - 1), max_size=ways_in))) if v > 0 else []
        for v in range(count)
    ]


def _composed(parts: list[Shape], *, series: bool) -> Shape:
    shape: Shape = []
    for part in parts:
        start = len(shape)
        entry = range(start) if series else ()
        shape += [[*entry, *(start + p for p in stages)] for stages in part]
    return shape


SERIES_PARALLEL: st.SearchStrategy[Shape] = st.recursive(
    st.just([[]]),
    lambda parts: st.builds(
        _composed, st.lists(parts, min_size=2, max_size=4), series=st.booleans()
    ),
    max_leaves=STAGES_MAX,
)


def _rooted(shape: Shape) -> "nx.DiGraph[int]":
    """The workflow as a graph, its entries after ROOT."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_edges_from((p, v) for v, stages in enumerate(shape) for p in stages or [ROOT])
    return graph


def _naive_own(shape: Shape, lengths: list[float]) -> list[float]:
    """The rule in the module's docstring, word by word: all chains of children are listed."""
    graph = nx.transitive_reduction(_rooted(shape))
    dominators = nx.immediate_dominators(graph, ROOT)
    anl = dict(enumerate(lengths)) | {ROOT: 0.0}

    @cache
    def chain_lengths(v: int) -> dict[tuple[int, ...], float]:
        children = [child for child in range(len(shape)) if dominators[child] == v]
        return {
            chain: sum(length(child) for child in chain)
            for count in range(len(children) + 1)
            for chain in combinations(children, count)
            if all(nx.has_path(graph, i, j) for i, j in pairwise(chain))
        }

    def length(v: int) -> float:
        return anl[v] + max(chain_lengths(v).values())

    def budget(v: int) -> float:
        if v == ROOT:
            return 1.0
        parent = dominators[v]
        siblings = chain_lengths(parent)
        left = budget(parent) * max(siblings.values()) / length(parent)
        return left * length(v) / max(siblings[chain] for chain in siblings if v in chain)

    return [budget(v) * anl[v] / length(v) for v in range(len(shape))]


@quick
@given(wide_dags())
def test_dominators_are_those_of_networkx(shape: Shape) -> None:
    """One pass in topological order finds what networkx finds."""
    expected = nx.immediate_dominators(_rooted(shape), ROOT)
    assert immediate_dominators(Dag.of(shape)) == tuple(expected[v] for v in range(len(shape)))


def test_dominators_of_small_workflows() -> None:
    """A join is dominated by its fork; nothing dominates an entry, or a join of entries."""
    assert immediate_dominators(Dag.of(CHAIN)) == (ROOT, 0, 1, 2)
    assert immediate_dominators(Dag.of(DIAMOND)) == (ROOT, 0, 0, 0)
    assert immediate_dominators(Dag.of(N_SHAPE)) == (ROOT, 0, 0, 0, 2)
    assert immediate_dominators(Dag.of([[], [], [0, 1], [2]])) == (ROOT, ROOT, ROOT, 2)


@quick
@given(dags(most=6), LENGTHS)
def test_split_follows_the_rule(shape: Shape, lengths: list[float]) -> None:
    """The parts are those of the rule when it is worked out chain by chain."""
    lengths = lengths[: len(shape)]
    found = split(Dag.of(shape), lengths)
    assert found.own_ratio == pytest.approx(_naive_own(shape, lengths), rel=1e-12, abs=0.0)


@quick
@given(wide_dags(), LENGTHS)
def test_no_path_exceeds_the_slo(shape: Shape, lengths: list[float]) -> None:
    """Every stage has a part, and the parts along any path are at most the SLO."""
    dag = Dag.of(shape)
    own = split(dag, lengths[: len(shape)]).own_ratio
    assert len(own) == len(shape)
    assert min(own) > 0.0
    assert max(dag.longest_after(own)) <= 1.0 + 1e-12


@quick
@given(wide_dags(), LENGTHS)
def test_a_stage_starts_at_the_latest_deadline_before_it(
    shape: Shape, lengths: list[float]
) -> None:
    """An entry starts at once, any other stage when its last direct predecessor is due."""
    found = split(Dag.of(shape), lengths[: len(shape)])
    deadline = [
        before + own for before, own in zip(found.before_ratio, found.own_ratio, strict=True)
    ]
    for v, stages in enumerate(shape):
        assert found.before_ratio[v] == max((deadline[p] for p in stages), default=0.0)


@quick
@given(SERIES_PARALLEL, LENGTHS)
def test_the_longest_path_of_a_series_parallel_workflow_takes_the_whole_slo(
    shape: Shape, lengths: list[float]
) -> None:
    """Where every chain of siblings can be walked, no part of the SLO is left unused."""
    dag = Dag.of(shape[:STAGES_MAX])  # what is left of a longer one is series-parallel too
    own = split(dag, lengths[: len(dag.before)]).own_ratio
    assert isclose(max(dag.longest_after(own)), 1.0, rel_tol=1e-12)


@quick
@given(wide_dags(), LENGTHS, st.integers(1, 5))
def test_shortcuts_do_not_count(shape: Shape, lengths: list[float], size: int) -> None:
    """A stage that names all stages before it, not the direct ones alone, changes nothing."""
    dag = Dag.of(shape)
    wordy = Dag(dag.preceding, dag.preceding, dag.following)
    assert split(wordy, lengths[: len(shape)]) == split(dag, lengths[: len(shape)])
    assert groups(wordy, size) == groups(dag, size)


def test_a_chain_is_split_in_proportion() -> None:
    """Along a chain each stage has its ANL, as with the proportional split."""
    found = split(Dag.of(CHAIN), [0.1, 0.2, 0.3, 0.4])
    assert found.own_ratio == pytest.approx((0.1, 0.2, 0.3, 0.4))
    assert found.before_ratio == pytest.approx((0.0, 0.1, 0.3, 0.6))


def test_a_short_branch_has_the_time_of_the_long_one() -> None:
    """The fork and the join are cut by the long branch; the short one shares what the fork left.

    The fork keeps 1/8 (0.1 of 0.1 + 0.6 + 0.1); of the 7/8 left the long branch has 6/7. The short
    one would share them with the join 2 to 1, and the join still starts when the long one is due.
    """
    found = split(Dag.of(DIAMOND), [0.1, 0.2, 0.6, 0.1])
    assert found.own_ratio == pytest.approx((1 / 8, 7 / 12, 6 / 8, 1 / 8))
    assert found.before_ratio == pytest.approx((0.0, 1 / 8, 1 / 8, 7 / 8))


def test_the_n_shape_leaves_a_part_unused() -> None:
    """Stage 2 counts with stage 4, which it dominates, though stage 3 does not wait for stage 4.

    So the longest chain, 0, 2 with 4, 3, is not one path: the longest path, 0, 2, 4, takes 8/9.
    """
    dag = Dag.of(N_SHAPE)
    found = split(dag, [0.2, 0.1, 0.2, 0.1, 0.4])
    assert found.own_ratio == pytest.approx((2 / 9, 3.5 / 9, 2 / 9, 1 / 9, 4 / 9))
    assert found.before_ratio == pytest.approx((0.0, 2 / 9, 2 / 9, 5.5 / 9, 4 / 9))
    assert isclose(max(dag.longest_after(found.own_ratio)), 8 / 9)


def test_every_entry_shares_the_whole_slo() -> None:
    """Two entries before a join share the SLO with it; a stage on its own has all of it."""
    found = split(Dag.of([[], [], [0, 1], []]), [0.1, 0.6, 0.2, 0.1])
    assert found.own_ratio == pytest.approx((1 / 3, 3 / 4, 1 / 4, 1.0))
    assert found.before_ratio == pytest.approx((0.0, 0.0, 3 / 4, 0.0))


@quick
@given(wide_dags(), st.integers(1, 5))
def test_groups_are_runs_cut_from_their_start(shape: Shape, size: int) -> None:
    """Every stage is in one group, groups are parts of runs, and only a full group is followed."""
    found = groups(Dag.of(shape), size)
    direct = nx.transitive_reduction(_rooted(shape))
    links = {
        (v, w)
        for v, w in direct.edges
        if v != ROOT and direct.out_degree(v) == 1 and direct.in_degree(w) == 1
    }
    inside = {link for group in found for link in pairwise(group)}
    assert sorted(v for group in found for v in group) == list(range(len(shape)))
    assert max(len(group) for group in found) <= size
    assert inside <= links
    full = {group[-1] for group in found if len(group) == size}
    assert {v for v, _ in links - inside} <= full


def test_groups_of_small_workflows() -> None:
    """A run of five is cut into three and two; a fork, a join and an entry start groups."""
    run = Dag.of([[], [0], [1], [2], [3]])
    assert groups(run, 3) == ((0, 1, 2), (3, 4))
    assert groups(run, 1) == ((0,), (1,), (2,), (3,), (4,))
    assert groups(Dag.of(DIAMOND), 3) == ((0,), (1,), (2,), (3,))
    around_a_fork = Dag.of([[], [0], [1], [1], [2], [3], [4, 5], [6], []])
    assert groups(around_a_fork, 3) == ((0, 1), (2, 4), (3, 5), (6, 7), (8,))


@pytest.mark.parametrize("size", [0, -1])
def test_a_group_holds_at_least_one_stage(size: int) -> None:
    """The error says which size was asked for, and which may be."""
    with pytest.raises(ValueError, match=f"at most {size} stages .* 1 or more"):
        groups(Dag.of(CHAIN), size)
