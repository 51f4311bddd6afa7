"""Stages of a workflow as a graph, and the walk of a request through it."""

from collections.abc import Sequence
from graphlib import TopologicalSorter

from scheduler.model.documents import Stage


class StageGraph:
    """Stages by index, in the order of the workflow.

    Attributes:
        entries: stages without a predecessor.
        successors, predecessors: neighbours of each stage in the graph.
        frees_all: true for each stage whose successors wait for no other one.
        has_siblings: true for each stage that others may run in parallel with.
        behind: stages that run after each stage, each behind its own successors.
    """

    __slots__ = (
        "behind",
        "entries",
        "frees_all",
        "has_siblings",
        "predecessor_counts",
        "predecessors",
        "successors",
    )

    def __init__(self, stages: Sequence[Stage]) -> None:
        index = {stage.name: i for i, stage in enumerate(stages)}
        self.predecessors = [[index[name] for name in stage.after] for stage in stages]
        self.successors = [
            [i for i, after in enumerate(self.predecessors) if stage in after]
            for stage in range(len(stages))
        ]
        self.predecessor_counts = [len(after) for after in self.predecessors]
        self.frees_all = [
            all(self.predecessor_counts[i] == 1 for i in after) for after in self.successors
        ]
        self.entries = [i for i, count in enumerate(self.predecessor_counts) if not count]
        later = [self._reached(i, self.successors) for i in range(len(stages))]
        related = [reached | self._reached(i, self.predecessors) for i, reached in enumerate(later)]
        self.has_siblings = [len(reached) + 1 < len(stages) for reached in related]
        last_first = [*TopologicalSorter(dict(enumerate(self.successors))).static_order()]
        self.behind = [[i for i in last_first if i in reached] for reached in later]

    @staticmethod
    def _reached(stage: int, following: Sequence[Sequence[int]]) -> set[int]:
        reached: set[int] = set()
        pending = list(following[stage])
        while pending:
            at = pending.pop()
            if at not in reached:
                reached.add(at)
                pending.extend(following[at])
        return reached


class StageWalk:
    """Progress of one request.

    Attributes:
        graph: stages of its workflow.
        unfinished: number of stages that have not ended.
    """

    __slots__ = ("_pending", "graph", "unfinished")

    def __init__(self, graph: StageGraph) -> None:
        self.graph = graph
        self._pending = graph.predecessor_counts.copy()  # by stage: predecessors not yet ended
        self.unfinished = len(self._pending)

    def finish(self, stage: int) -> Sequence[int]:
        """End a stage; return the stages that may begin now."""
        self.unfinished -= 1
        if self.graph.frees_all[stage]:  # nearly always
            return self.graph.successors[stage]
        ready = []
        for successor in self.graph.successors[stage]:
            self._pending[successor] -= 1
            if not self._pending[successor]:
                ready.append(successor)
        return ready
