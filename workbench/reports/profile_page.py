"""Page of a FunctionProfile: latency over batch and GPU share, and all configurations."""

from scheduler import __version__
from scheduler.model.documents import FunctionProfile, GpuProfile
from workbench.reports.numbers import milliseconds
from workbench.reports.renderer import render, require_extra


def profile_page(profile: FunctionProfile) -> str:
    """Render the page as HTML.

    Raises:
        MissingReportLibraryError: a library for pages is not installed.
    """
    require_extra()
    from workbench.reports import drawing, profile_figures  # noqa: PLC0415 - imports matplotlib

    annotations = (profile.metadata.model_extra or {}).get("annotations")
    remarks = annotations if isinstance(annotations, dict) else {}
    labels = [_label(gpu) for gpu in profile.spec.gpus]
    with drawing.house_style():
        figures = [
            (gpu, label, profile_figures.latency_figure(gpu, f"latency-{number}", label))
            for number, (gpu, label) in enumerate(zip(profile.spec.gpus, labels, strict=True))
        ]
    return render(
        "profile.html.j2",
        name=profile.metadata.name,
        spec=profile.spec,
        remarks=[(str(key), str(text)) for key, text in sorted(remarks.items())],
        figures=figures,
        ms=milliseconds,
        version=__version__,
    )


def _label(gpu: GpuProfile) -> str:
    """Describe the figure in words."""
    fastest = min(gpu.configurations, key=lambda c: c.latency_ms)
    slowest = max(gpu.configurations, key=lambda c: c.latency_ms)
    p95 = any(c.p95_ms is not None for c in gpu.configurations)
    return (
        f"{len(gpu.configurations)} configurations on {gpu.model}, from "
        f"{milliseconds(fastest.latency_ms)} ms {fastest} to {milliseconds(slowest.latency_ms)} ms "
        f"{slowest}." + (" The lines upwards end at the 95th percentiles." if p95 else "")
    )
