"""Classes of requests among the current reservations: the mix that ``defrag`` places for."""

from collections import Counter, defaultdict

from scheduler.placement.fragmentation import RequestClass, RequestMix


class DemandCounter:
    """Number of pods of each request class, by GPU model."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[RequestClass]] = defaultdict(Counter)
        self._by_uid: dict[str, tuple[str, RequestClass]] = {}
        self._mixes: dict[str, RequestMix] = {}

    def add(self, uid: str, model: str, request: RequestClass) -> None:
        """Count a pod on a GPU of that model, in place of what was counted for it before."""
        if self._by_uid.get(uid) == (model, request):
            return
        self.remove(uid)
        self._by_uid[uid] = model, request
        self._counts[model][request] += 1
        self._mixes.pop(model, None)

    def remove(self, uid: str) -> None:
        """Count a pod no longer."""
        counted = self._by_uid.pop(uid, None)
        if counted is None:
            return
        model, request = counted
        self._counts[model][request] -= 1
        if not self._counts[model][request]:
            del self._counts[model][request]
        self._mixes.pop(model, None)

    def mix(self, model: str) -> RequestMix:
        """Return the mix on GPUs of that model; empty where no pod has a reservation on any."""
        mix = self._mixes.get(model)
        if mix is None:
            mix = self._mixes[model] = RequestMix.of(self._counts.get(model, {}))
        return mix
