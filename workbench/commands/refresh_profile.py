"""``esg profiles refresh``: profiles corrected by the run times that gateways observed."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import typer
from pydantic import ValidationError

from scheduler.cli.gateway_documents import GatewayReadError, read_documents
from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import FunctionProfile, to_manifest
from workbench.commands.profile_files import read_profiles
from workbench.commands.profile_output import refuse, write_text
from workbench.profiles.observed_run_times import (
    ANNOTATION_REFRESHED,
    ObservedRunTimes,
    RefreshError,
    refreshed_profile,
)
from workbench.profiles.profile_documents import as_yaml


def refresh_profiles(
    file: Path, out: Path, *, url: str, kubeconfig: Path | None, function: str | None
) -> None:
    """Write the corrected profiles; exit 1, and write nothing, if one cannot be corrected."""
    profiles = read_profiles(file, function)
    try:
        refreshed = asyncio.run(_refreshed(profiles, url, kubeconfig))
    except DocumentError as error:
        refuse(error.problems)
    except (GatewayReadError, RefreshError) as error:
        refuse([error])
    for profile in refreshed:
        remark = to_manifest(profile)["metadata"]["annotations"][ANNOTATION_REFRESHED]
        typer.echo(f"{profile.metadata.name}: {remark}", err=True)
    write_text(out, as_yaml(refreshed, "Corrected by esg profiles refresh."))


async def _refreshed(
    profiles: Iterable[FunctionProfile], url: str, kubeconfig: Path | None
) -> list[FunctionProfile]:
    refreshed = []
    for profile in profiles:
        path = f"/v1/run-times/{profile.metadata.name}"
        answers = (await read_documents(path, url, kubeconfig)).values()
        try:
            observations = [ObservedRunTimes.model_validate(answer) for answer in answers]
        except ValidationError as error:
            raise GatewayReadError(f"{url}{path}: {error.errors()[0]['msg']}") from None
        refreshed.append(refreshed_profile(profile, observations))
    return refreshed
