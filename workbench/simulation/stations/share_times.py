"""Time of one request of a stage on any share of a GPU, between the profiled shares."""

from bisect import bisect_left
from math import exp, log

from scheduler.model.documents import FunctionProfile


class ShareTimes:
    """Profiled times of a function at batch 1 on one GPU model.

    Between two profiled shares the logarithms are interpolated. Below the smallest one the time
    grows in inverse proportion to the share; above the largest one it does not fall.
    """

    def __init__(self, profile: FunctionProfile, gpu_model: str, cpus: int) -> None:
        """Take the profiled configurations with at most so many vCPUs, or with the fewest."""
        gpu = next(gpu for gpu in profile.spec.gpus if gpu.model == gpu_model)
        batch = min(c.batch for c in gpu.configurations)
        listed = [c for c in gpu.configurations if c.batch == batch]
        cpu = max(cpus, min(c.cpu for c in listed))
        fastest: dict[int, float] = {}
        for c in listed:
            if c.cpu <= cpu:
                known_ms = fastest.get(c.gpu_percent, c.latency_ms)
                fastest[c.gpu_percent] = min(known_ms, c.latency_ms)
        self._percents = sorted(fastest)
        self._times_ms = [fastest[percent] for percent in self._percents]
        self.memory_mib = min(c.memory_mib for c in listed)
        self._known_ms: dict[float, float] = {}

    def time_ms(self, percent: float) -> float:
        """Return the time on a share, in percent of the GPU."""
        time_ms = self._known_ms.get(percent)
        if time_ms is None:
            time_ms = self._known_ms[percent] = self._interpolated_ms(percent)
        return time_ms

    def _interpolated_ms(self, percent: float) -> float:
        percents, times_ms = self._percents, self._times_ms
        place = bisect_left(percents, percent)
        if place == len(percents):
            return times_ms[-1]
        if place == 0:
            return times_ms[0] * percents[0] / percent
        low, high = percents[place - 1], percents[place]
        ratio = log(percent / low) / log(high / low)
        return exp((1 - ratio) * log(times_ms[place - 1]) + ratio * log(times_ms[place]))
