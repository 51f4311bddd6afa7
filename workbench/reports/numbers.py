"""Numbers as people read them, the same in tables of the terminal and on pages."""

from scheduler.model.plan import Configuration

_ALL_ZEROS_BELOW = 0.001
_NO_TENTHS_FROM_MS = 1_000
_NO_POINT_FROM_PERCENT = 10


def milliseconds(value_ms: float) -> str:
    """To a tenth, thousands apart."""
    return f"{value_ms:,.1f}"


def dollars_per_1000(dollars_per_request: float) -> str:
    """What a thousand requests cost, in dollars."""
    value = 1000 * dollars_per_request
    return f"{value:,.4f}" if value == 0 or value >= _ALL_ZEROS_BELOW else f"{value:.3g}"


def percent(ratio: float) -> str:
    """A ratio in percent, with two digits that count at least."""
    value = 100 * ratio
    return f"{value:,.0f} %" if value >= _NO_POINT_FROM_PERCENT else f"{value:.2g} %"


def from_to(span_ms: tuple[float, float]) -> str:
    """A span of time; without tenths where they say nothing."""
    digits = 0 if max(map(abs, span_ms)) >= _NO_TENTHS_FROM_MS else 1
    return " to ".join(f"{value_ms:,.{digits}f}" for value_ms in span_ms)


def given(configuration: Configuration) -> str:
    """What a pod gets, in a few words."""
    c = configuration
    return f"batch {c.batch}, {c.cpu} vCPU, {c.gpu_percent} % GPU"
