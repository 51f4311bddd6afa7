"""Structure of workflows: topological numbers, modules."""

from itertools import permutations

from hypothesis import given

from scheduler.search.dag import Composition, Dag, decompose, members, numbered
from tests.examples import examples
from tests.search.factories import N_SHAPE, dags
from workbench.profiles.builders import workflow

quick = examples(150)


def _has_n(dag: Dag) -> bool:
    """Return true if four stages are ordered like the letter N: only a < c, b < c and b < d."""
    related = {(p, v) for v in range(len(dag.preceding)) for p in members(dag.preceding[v])}
    return any(
        {(a, c), (b, c), (b, d)} <= related
        and not {(a, d), (d, a), (a, b), (b, a), (c, d), (d, c)} & related
        for a, b, c, d in permutations(range(len(dag.preceding)), 4)
    )


def _has_prime(dag: Dag, mask: int) -> bool:
    composition, parts = decompose(dag, mask)
    if composition is Composition.SINGLE:
        return False
    return composition is Composition.PRIME or any(_has_prime(dag, part) for part in parts)


@quick
@given(dags(stages_max=7))
def test_prime_means_not_series_parallel(shape: list[list[int]]) -> None:
    """A workflow is series-parallel exactly if no four of its stages form an N (Valdes et al.)."""
    dag = Dag.of(shape)
    assert _has_prime(dag, (1 << len(shape)) - 1) == _has_n(dag)


@quick
@given(dags(stages_max=7))
def test_parts_are_modules(shape: list[list[int]]) -> None:
    """The parts partition a set, and outside stages have one relation to all of a part."""
    dag = Dag.of(shape)
    mask = (1 << len(shape)) - 1
    _, parts = decompose(dag, mask)
    assert sum(parts) == mask
    for part in parts:
        for outside in members(mask & ~part):
            assert dag.preceding[outside] & part in {0, part}
            assert dag.following[outside] & part in {0, part}


def test_series_come_in_order() -> None:
    """The parts of a series are in execution order."""
    fork_and_join = Dag.of([[], [0], [0], [1, 2], [3]])
    assert decompose(fork_and_join, 0b11111) == (Composition.SERIES, [1, 0b110, 0b1000, 0b10000])
    assert decompose(fork_and_join, 0b110) == (Composition.PARALLEL, [0b10, 0b100])


def test_stages_may_be_written_in_any_order() -> None:
    """Stages have topological numbers, regardless of their order in the document."""
    names, dag = numbered(workflow([[2], [0], []]))
    assert names == ("s2", "s0", "s1")
    assert dag == Dag.of([[], [0], [1]])


def test_reduced_keeps_only_direct_predecessors() -> None:
    """The order among some stages has no transitive edges."""
    dag = Dag.of([[], [0], [0, 1], [0, 1, 2]])
    assert dag.reduced([0, 1, 3]).before == (0, 0b1, 0b10)


def test_longest_paths() -> None:
    """The longest paths before and from each stage are computed."""
    dag = Dag.of(N_SHAPE)
    lengths = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert dag.longest_after(lengths) == [21.0, 10.0, 20.0, 8.0, 16.0]
    assert dag.longest_before(lengths) == [0.0, 1.0, 1.0, 5.0, 5.0]
