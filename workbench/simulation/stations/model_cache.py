"""Models in the memory of one GPU."""

from collections.abc import Callable, Iterable


class ModelCache:
    """Functions whose models are loaded, the least recently used first.

    Attributes:
        capacity_mib: memory of the GPU for models.
        evictions: number of models that were removed for others.
    """

    def __init__(self, capacity_mib: int) -> None:
        self.capacity_mib = capacity_mib
        self.evictions = 0
        self._held_mib: dict[str, int] = {}

    def __contains__(self, function: str) -> bool:
        return function in self._held_mib

    @property
    def functions(self) -> tuple[str, ...]:
        """Loaded functions, the least recently used first."""
        return tuple(self._held_mib)

    @property
    def memories_mib(self) -> dict[str, int]:
        """Memory of each loaded function, the least recently used first."""
        return dict(self._held_mib)

    @property
    def free_mib(self) -> int:
        """Memory without a model."""
        return self.capacity_mib - sum(self._held_mib.values())

    def use(
        self,
        function: str,
        memory_mib: int,
        *,
        pinned: Iterable[str] = (),
        victim: Callable[[list[str]], str] = lambda functions: functions[0],
    ) -> bool:
        """Use a model; return true if it has to be loaded.

        Args:
            function: name of the model's function.
            memory_mib: GPU memory that the model needs.
            pinned: functions that run now, whose models stay.
            victim: function that chooses the model to evict, from candidates with the oldest first.
                Default: the oldest.

        Raises:
            ValueError: the GPU cannot hold it and the pinned ones.
        """
        held_mib = self._held_mib.pop(function, None)
        if held_mib is not None:
            self._held_mib[function] = held_mib
            return False
        pinned = set(pinned)
        while self.free_mib < memory_mib:
            removable = [name for name in self._held_mib if name not in pinned]
            if not removable:
                raise ValueError(
                    f"function {function}: its model has {memory_mib:,} MiB, and {self.free_mib:,} "
                    "are free on the GPU; give the scenario more memory_mib"
                )
            del self._held_mib[victim(removable)]
            self.evictions += 1
        self._held_mib[function] = memory_mib
        return True
