"""Stages of a workflow as a graph, and the walk of one request through it."""

from collections.abc import Sequence

from scheduler.model.documents import Stage


class StageGraph:
    """Stages by index, in the order of the workflow.

    Attributes:
        entries: stages without a predecessor.
        successors, predecessors: of each stage.
    """

    __slots__ = ("entries", "predecessor_counts", "predecessors", "successors")

    def __init__(self, stages: Sequence[Stage]) -> None:
        index = {stage.name: i for i, stage in enumerate(stages)}
        self.predecessors = [[index[name] for name in stage.after] for stage in stages]
        self.successors = [
            [i for i, after in enumerate(self.predecessors) if stage in after]
            for stage in range(len(stages))
        ]
        self.predecessor_counts = [len(after) for after in self.predecessors]
        self.entries = [i for i, count in enumerate(self.predecessor_counts) if not count]


class StageWalk:
    """Progress of one request.

    Attributes:
        unfinished: number of stages that have not ended.
    """

    __slots__ = ("_graph", "_pending", "unfinished")

    def __init__(self, graph: StageGraph) -> None:
        self._graph = graph
        self._pending = graph.predecessor_counts.copy()  # by stage: predecessors not yet ended
        self.unfinished = len(self._pending)

    def finish(self, stage: int) -> list[int]:
        """End a stage; return the stages that may begin now."""
        self.unfinished -= 1
        ready = []
        for successor in self._graph.successors[stage]:
            self._pending[successor] -= 1
            if not self._pending[successor]:
                ready.append(successor)
        return ready
