"""Classes of requests among the current reservations: the mix that ``defrag`` places for."""

from bisect import bisect_left

import numpy as np

from scheduler.placement.arrays import MixArrays
from scheduler.placement.fragmentation import CLASSES_MAX, RequestClass, RequestMix


class DemandCounter:
    """Number of pods of each request class, by GPU model."""

    def __init__(self) -> None:
        self._by_uid: dict[str, tuple[str, RequestClass]] = {}
        self._by_model: dict[str, FrequentClasses] = {}

    def add(self, uid: str, model: str, request: RequestClass) -> None:
        """Count a pod on a GPU of that model, in place of what was counted for it before."""
        if self._by_uid.get(uid) == (model, request):
            return
        self.remove(uid)
        self._by_uid[uid] = model, request
        self._classes(model).change(request, 1)

    def remove(self, uid: str) -> None:
        """Count a pod no longer."""
        counted = self._by_uid.pop(uid, None)
        if counted is not None:
            model, request = counted
            self._by_model[model].change(request, -1)

    def mix(self, model: str) -> RequestMix:
        """Return the mix on GPUs of that model; empty where no pod has a reservation on any.

        It changes with the next reservation.
        """
        return self._classes(model).mix

    def _classes(self, model: str) -> "FrequentClasses":
        classes = self._by_model.get(model)
        if classes is None:
            classes = self._by_model[model] = FrequentClasses()
        return classes


class FrequentClasses:
    """The mix of the most frequent classes, which changes in place with each pod."""

    def __init__(self) -> None:
        self._pods: dict[RequestClass, int] = {}
        self._ranked: list[tuple[int, RequestClass]] = []  # the most frequent at the end
        self._in_mix: list[RequestClass] = []
        self._index: dict[RequestClass, int] = {}  # of each class in the mix
        columns = np.zeros((len(MixArrays._fields), CLASSES_MAX), np.int64)
        self._views = [column.data for column in columns]
        self._mixes = [  # by number of classes
            RequestMix(MixArrays(*columns[:, :count])) for count in range(CLASSES_MAX + 1)
        ]

    @property
    def mix(self) -> RequestMix:
        """The mix that `RequestMix.of` returns, in any order."""
        return self._mixes[len(self._in_mix)]

    def change(self, request: RequestClass, change: int) -> None:
        """Add to the pods of a class, or remove some of them."""
        if request.gpu_percent <= 0:
            return
        ranked = self._ranked
        pods = self._pods.pop(request, 0)
        if pods:
            del ranked[bisect_left(ranked, (pods, request))]
        pods += change
        rank = -1
        if pods:
            self._pods[request] = pods
            rank = bisect_left(ranked, (pods, request))
            ranked.insert(rank, (pods, request))
        index = self._index.get(request)
        if rank >= max(len(ranked) - CLASSES_MAX, 0):
            if index is None:
                index = self._new_index()
            self._put(index, pods, request)
        elif index is not None:
            del self._index[request]
            self._fill(index)

    def _new_index(self) -> int:
        """Return the index for one more class; of too many, the rarest leaves the mix."""
        if len(self._in_mix) == CLASSES_MAX:
            return self._index.pop(self._ranked[-CLASSES_MAX - 1][1])
        self._in_mix.append(_NO_CLASS)
        return len(self._in_mix) - 1

    def _fill(self, index: int) -> None:
        """Put another class in the place of one that has left the mix: the next, or the last."""
        if len(self._ranked) >= CLASSES_MAX:
            self._put(index, *self._ranked[-CLASSES_MAX])
            return
        last = self._in_mix.pop()
        if index < len(self._in_mix):
            self._put(index, self._pods[last], last)

    def _put(self, index: int, pods: int, request: RequestClass) -> None:
        self._in_mix[index] = request
        self._index[request] = index
        cpu_milli, gpu_percent, memory_mib, number = self._views
        cpu_milli[index] = request.cpu_milli
        gpu_percent[index] = request.gpu_percent
        memory_mib[index] = request.memory_mib
        number[index] = pods


_NO_CLASS = RequestClass(0, 0, 0)
