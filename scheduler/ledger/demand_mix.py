"""What the holds ask of GPUs, counted: the mix that placement guards against fragmentation."""

from collections import Counter, defaultdict

from scheduler.placement.fragmentation import RequestClass, RequestMix


class DemandCounter:
    """Classes of asks by GPU model, each with how many pods hold it now."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[RequestClass]] = defaultdict(Counter)
        self._noted: dict[str, tuple[str, RequestClass]] = {}
        self._mixes: dict[str, RequestMix] = {}

    def note(self, uid: str, model: str, ask: RequestClass) -> None:
        """A pod holds it, on a GPU of that model; what was noted of the pod before is forgotten."""
        if self._noted.get(uid) == (model, ask):
            return
        self.forget(uid)
        self._noted[uid] = model, ask
        self._counts[model][ask] += 1
        self._mixes.pop(model, None)

    def forget(self, uid: str) -> None:
        """A pod holds nothing any more."""
        noted = self._noted.pop(uid, None)
        if noted is None:
            return
        model, ask = noted
        self._counts[model][ask] -= 1
        if not self._counts[model][ask]:
            del self._counts[model][ask]
        self._mixes.pop(model, None)

    def mix(self, model: str) -> RequestMix:
        """The mix on GPUs of that model; without a class where nothing is held on any."""
        mix = self._mixes.get(model)
        if mix is None:
            mix = self._mixes[model] = RequestMix.of(self._counts.get(model, {}))
        return mix
