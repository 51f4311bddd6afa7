"""Split of the SLO by dominators and ANL, and division of the stages into groups."""

from functools import cache
from itertools import combinations, pairwise
from math import isclose

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.search.chains.slo_split import ROOT, groups, immediate_dominators, split
from scheduler.search.dag import Dag
from tests.examples import examples
from tests.search.factories import CHAIN, N_SHAPE, dags

Shape = list[list[int]]

quick = examples(150)
DIAMOND = ((), (0,), (0,), (1, 2))
STAGES_MAX = 32
LENGTHS = st.lists(  # more apart than one microsecond is from one hour
    st.floats(1e-10, 1.0), min_size=STAGES_MAX, max_size=STAGES_MAX
)


@st.composite
def wide_dags(draw: st.DrawFn) -> Shape:
    """Draw DAGs of up to 32 stages, some sparse, with many runs, forks and entries."""
    edges_max = draw(st.integers(0, 4))
    count = draw(st.integers(1, STAGES_MAX))
    return [
        sorted(draw(st.sets(st.integers(0, v - 1), max_size=edges_max))) if v > 0 else []
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
    """Return the workflow as a graph with its entries after ROOT."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_edges_from((p, v) for v, stages in enumerate(shape) for p in stages or [ROOT])
    return graph


def _naive_own(shape: Shape, lengths: list[float]) -> list[float]:
    """Apply the rule of the module's docstring literally: list all chains of children."""
    graph = nx.transitive_reduction(_rooted(shape))
    dominators = nx.immediate_dominators(graph, ROOT)
    anl = dict(enumerate(lengths)) | {ROOT: 0.0}

    @cache
    def chain_lengths(v: int) -> dict[tuple[int, ...], float]:
        children = [child for child in range(len(shape)) if dominators[child] == v]
        return {
            chain: sum(length_ratio(child) for child in chain)
            for count in range(len(children) + 1)
            for chain in combinations(children, count)
            if all(nx.has_path(graph, i, j) for i, j in pairwise(chain))
        }

    def length_ratio(v: int) -> float:
        return anl[v] + max(chain_lengths(v).values())

    def budget_ratio(v: int) -> float:
        if v == ROOT:
            return 1.0
        parent = dominators[v]
        siblings = chain_lengths(parent)
        passed_on = budget_ratio(parent) * max(siblings.values()) / length_ratio(parent)
        return (
            passed_on * length_ratio(v) / max(siblings[chain] for chain in siblings if v in chain)
        )

    return [budget_ratio(v) * anl[v] / length_ratio(v) for v in range(len(shape))]


@quick
@given(wide_dags())
def test_dominators_are_those_of_networkx(shape: Shape) -> None:
    """One pass in topological order has the result of networkx."""
    expected = nx.immediate_dominators(_rooted(shape), ROOT)
    assert immediate_dominators(Dag.of(shape)) == tuple(expected[v] for v in range(len(shape)))


def test_dominators_of_small_workflows() -> None:
    """A join is dominated by its fork; an entry and a join of entries by no stage."""
    assert immediate_dominators(Dag.of(CHAIN)) == (ROOT, 0, 1, 2)
    assert immediate_dominators(Dag.of(DIAMOND)) == (ROOT, 0, 0, 0)
    assert immediate_dominators(Dag.of(N_SHAPE)) == (ROOT, 0, 0, 0, 2)
    assert immediate_dominators(Dag.of([[], [], [0, 1], [2]])) == (ROOT, ROOT, ROOT, 2)


@quick
@given(dags(stages_max=6), LENGTHS)
def test_split_follows_the_rule(shape: Shape, lengths: list[float]) -> None:
    """The parts are those of the naive rule."""
    lengths = lengths[: len(shape)]
    result = split(Dag.of(shape), lengths)
    assert result.own_ratio == pytest.approx(_naive_own(shape, lengths), rel=1e-12, abs=0.0)


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
    """An entry starts at 0, any other stage at the last deadline of its direct predecessors."""
    result = split(Dag.of(shape), lengths[: len(shape)])
    deadline = [
        before + own for before, own in zip(result.before_ratio, result.own_ratio, strict=True)
    ]
    for v, stages in enumerate(shape):
        assert result.before_ratio[v] == max((deadline[p] for p in stages), default=0.0)


@quick
@given(SERIES_PARALLEL, LENGTHS)
def test_the_longest_path_of_a_series_parallel_workflow_takes_the_whole_slo(
    shape: Shape, lengths: list[float]
) -> None:
    """If every chain of siblings is a path, no part of the SLO is unused."""
    dag = Dag.of(shape[:STAGES_MAX])  # a prefix of a longer one is series-parallel, too
    own = split(dag, lengths[: len(dag.before)]).own_ratio
    assert isclose(max(dag.longest_after(own)), 1.0, rel_tol=1e-12)


@quick
@given(wide_dags(), LENGTHS, st.integers(1, 5))
def test_transitive_edges_do_not_count(shape: Shape, lengths: list[float], size: int) -> None:
    """Transitive edges change neither the split nor the groups."""
    dag = Dag.of(shape)
    wordy = Dag(dag.preceding, dag.preceding, dag.following)
    assert split(wordy, lengths[: len(shape)]) == split(dag, lengths[: len(shape)])
    assert groups(wordy, size) == groups(dag, size)


def test_a_chain_is_split_in_proportion() -> None:
    """Along a chain the part of each stage is its ANL."""
    result = split(Dag.of(CHAIN), [0.1, 0.2, 0.3, 0.4])
    assert result.own_ratio == pytest.approx((0.1, 0.2, 0.3, 0.4))
    assert result.before_ratio == pytest.approx((0.0, 0.1, 0.3, 0.6))


def test_a_short_branch_has_the_time_of_the_long_one() -> None:
    """The long branch limits the fork and the join; the short one has a part of the rest.

    The fork takes 1/8 (0.1 of 0.1 + 0.6 + 0.1); of the remaining 7/8 the long branch has 6/7. The
    short one shares them with the join 2 to 1, and the join starts at the long one's deadline.
    """
    result = split(Dag.of(DIAMOND), [0.1, 0.2, 0.6, 0.1])
    assert result.own_ratio == pytest.approx((1 / 8, 7 / 12, 6 / 8, 1 / 8))
    assert result.before_ratio == pytest.approx((0.0, 1 / 8, 1 / 8, 7 / 8))


def test_the_n_shape_leaves_a_part_unused() -> None:
    """The length of stage 2 includes stage 4, which it dominates; stage 3 does not wait for 4.

    The longest chain, 0, 2 with 4, 3, is therefore not one path: the longest path, 0, 2, 4, takes
    8/9.
    """
    dag = Dag.of(N_SHAPE)
    result = split(dag, [0.2, 0.1, 0.2, 0.1, 0.4])
    assert result.own_ratio == pytest.approx((2 / 9, 3.5 / 9, 2 / 9, 1 / 9, 4 / 9))
    assert result.before_ratio == pytest.approx((0.0, 2 / 9, 2 / 9, 5.5 / 9, 4 / 9))
    assert isclose(max(dag.longest_after(result.own_ratio)), 8 / 9)


def test_every_entry_shares_the_whole_slo() -> None:
    """Two entries before a join share the SLO with it; a stage alone has all of it."""
    result = split(Dag.of([[], [], [0, 1], []]), [0.1, 0.6, 0.2, 0.1])
    assert result.own_ratio == pytest.approx((1 / 3, 3 / 4, 1 / 4, 1.0))
    assert result.before_ratio == pytest.approx((0.0, 0.0, 3 / 4, 0.0))


@quick
@given(wide_dags(), st.integers(1, 5))
def test_groups_are_runs_cut_from_their_start(shape: Shape, size: int) -> None:
    """Every stage is in one group, groups are parts of runs, and only full ones are continued."""
    result = groups(Dag.of(shape), size)
    direct = nx.transitive_reduction(_rooted(shape))
    links = {
        (v, w)
        for v, w in direct.edges
        if v != ROOT and direct.out_degree(v) == 1 and direct.in_degree(w) == 1
    }
    inside = {link for group in result for link in pairwise(group)}
    assert sorted(v for group in result for v in group) == list(range(len(shape)))
    assert max(len(group) for group in result) <= size
    assert inside <= links
    full = {group[-1] for group in result if len(group) == size}
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
    """The error states the size and the valid range."""
    with pytest.raises(
        ValueError, match=f"at most {size} stages is empty; use a size of 1 or more"
    ):
        groups(Dag.of(CHAIN), size)
