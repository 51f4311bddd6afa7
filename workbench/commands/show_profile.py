"""``esg profiles show``: profiles of a file as tables, and one of them as a page."""

from pathlib import Path

import typer

from scheduler.model.documents import GpuProfile
from workbench.commands.profile_files import read_published
from workbench.commands.profile_output import refuse, write_text
from workbench.commands.wide_table import print_rows, wide_table
from workbench.profiles.bundles import BundleHeader
from workbench.reports.numbers import milliseconds
from workbench.reports.profile_page import profile_page
from workbench.reports.renderer import MissingReportLibraryError

_COLUMNS = ("batch", "vCPU", "GPU %", "MiB", "ms", "p95 ms", "ms a request")


def show_profiles(place: str, function: str | None, plot: Path | None) -> None:
    """Print the profiles of a file, folder or URL, and write the page of one; exit 1 without."""
    bundle = read_published(place, function)
    profiles = bundle.profiles
    if plot is not None:
        if len(profiles) > 1:
            names = ", ".join(profile.metadata.name for profile in profiles)
            refuse([f"a page has one profile; choose one with --function: {names}"])
        try:
            write_text(plot, profile_page(profiles[0]))
        except MissingReportLibraryError as error:
            refuse([error])
    if bundle.header is not None:
        _print_header(bundle.header)
    for profile in profiles:
        spec = profile.spec
        start = f"cold start {milliseconds(spec.cold_start_ms)} ms"
        if spec.cold_start_p95_ms is not None:
            start += f" (p95 {milliseconds(spec.cold_start_p95_ms)} ms)"
        typer.echo(f"{profile.metadata.name}: {start}, output {spec.output_mib:g} MiB")
        for gpu in spec.gpus:
            typer.echo(f"{gpu.model}{', sparse' if gpu.sparse else ''}:")
            _print_gpu(gpu)


def _print_header(header: BundleHeader) -> None:
    spec = header.spec
    typer.echo(f"{header.metadata.name}: {spec.machine}, {spec.license}")
    if spec.driver is not None:
        typer.echo(f"driver {spec.driver}")
    typer.echo(f"measured by: {spec.command}")
    for function, digest in spec.model_digests.items():
        typer.echo(f"model of {function}: {digest}")
    if spec.interference:
        typer.echo("runs beside a neighbour with the whole GPU; less in proportion to its share:")
    for function, slowdown in spec.interference.items():
        pairs = slowdown.items() if isinstance(slowdown, dict) else [("any function", slowdown)]
        for neighbour, ratio in pairs:
            typer.echo(f"  {function} beside {neighbour}: {1 + ratio:.2f} times as long")


def _print_gpu(gpu: GpuProfile) -> None:
    table = wide_table(_COLUMNS, names=())
    for c in gpu.configurations:
        table.add_row(
            str(c.batch),
            str(c.cpu),
            str(c.gpu_percent),
            f"{c.memory_mib:,}",
            milliseconds(c.latency_ms),
            "" if c.p95_ms is None else milliseconds(c.p95_ms),
            milliseconds(c.latency_ms / c.batch),
        )
    print_rows(table)
