"""Number formats for terminal tables and pages."""

from scheduler.model.plan import Configuration

_ALL_ZEROS_BELOW = 0.001
_NO_TENTHS_FROM_MS = 1_000
_NO_POINT_FROM_PERCENT = 10


def milliseconds(value_ms: float) -> str:
    """Format to a tenth, with a thousands separator."""
    return f"{value_ms:,.1f}"


def dollars_per_1000(dollars_per_request: float) -> str:
    """Format the cost of a thousand requests, in dollars."""
    value = 1000 * dollars_per_request
    return f"{value:,.4f}" if value == 0 or value >= _ALL_ZEROS_BELOW else f"{value:.3g}"


def percent(ratio: float) -> str:
    """Format a ratio in percent, with at least two significant digits."""
    value = 100 * ratio
    return f"{value:,.0f} %" if value >= _NO_POINT_FROM_PERCENT else f"{value:.2g} %"


def from_to(span_ms: tuple[float, float]) -> str:
    """Format a time span; large values without tenths."""
    digits = 0 if max(map(abs, span_ms)) >= _NO_TENTHS_FROM_MS else 1
    return " to ".join(f"{value_ms:,.{digits}f}" for value_ms in span_ms)


def describe(configuration: Configuration) -> str:
    """Describe a configuration in a few words."""
    c = configuration
    return f"batch {c.batch}, {c.cpu} vCPU, {c.gpu_percent} % GPU"
