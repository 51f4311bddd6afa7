"""Options of ``esg plan`` in words."""

from scheduler.search.planner import PlanRequest
from scheduler.settings import Settings


def facts(settings: Settings, request: PlanRequest, margin_ratio: float) -> list[tuple[str, str]]:
    """List the options of the plan for readers of the page."""
    groups = f", groups of at most {settings.group_size}" if settings.policy == "esg" else ""
    prices = (
        f"${settings.vcpu_hour_dollars:g} a vCPU-hour, ${settings.gpu_hour_dollars:g} a GPU-hour"
    )
    prices += "".join(
        f", ${dollars:g} of {model}" for model, dollars in settings.gpu_hour_dollars_of.items()
    )
    ceilings = [
        f"{limit:,} {unit}"
        for limit, unit in (
            (request.cpu_max, "vCPU"),
            (request.gpu_percent_max, "% of a GPU"),
            (request.memory_mib_max, "MiB of GPU memory"),
            (request.queued, "requests a batch"),
        )
        if limit is not None
    ]
    starts = ", ".join(f"{start_ms:,g}" for start_ms in request.starts_ms)
    named = [
        ("Policy", settings.policy + groups),
        ("Times", {"mean": "the profiles' means", "p95": "95th percentiles"}[settings.latency]),
        ("Prices", prices),
        ("Margin", f"{100 * margin_ratio:.3g} %" if margin_ratio else ""),
        ("The stage has at most", ", ".join(ceilings)),
        ("Rate", "" if request.rate_rps is None else f"{request.rate_rps:,g} requests a second"),
        ("GPU models", ", ".join(request.fleet.models if request.fleet else ())),
        ("Starts within", "" if request.starts_ms == (0.0,) else f"{starts} ms"),
    ]
    return [(name, text) for name, text in named if text]
