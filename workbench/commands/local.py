"""``esg local``: the gateway over model servers that run already, without a cluster."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import typer

from scheduler.cli.attainability import unattainable
from scheduler.cli.document_files import read_settings
from scheduler.cli.environment import from_environment
from scheduler.cli.failure import failing_on, stopped_by_ctrl_c
from scheduler.cli.logs import configure_logging
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.documents import Document, Workflow
from scheduler.model.function_server import FunctionServer, ServerProtocol
from scheduler.server import event_loop
from scheduler.server.sockets import ListenError
from scheduler.settings import Settings
from workbench.cluster.process import ProgramError, free_port, wait_until
from workbench.commands.workflow_files import read_workflows
from workbench.local.first_request import curl_command
from workbench.local.gateway import local_store, run_local
from workbench.local.servers import (
    LocalServerError,
    ServerAddress,
    match_servers,
    parse_server,
    protocol_of,
)

_HOST = "127.0.0.1"


def run(files: Sequence[Path], servers: Sequence[str], port: int) -> None:
    """Serve until Ctrl-C; a command with an error ends with status 1."""
    settings = read_settings(health_host=_HOST, page=True)
    settings = settings.model_copy(update={"health_port": settings.health_port or free_port()})
    documents = _read(files, settings)
    gateway = from_environment(GatewaySettings, host=_HOST, port=port or free_port())
    level = settings.log_level if "log_level" in settings.model_fields_set else "warning"
    configure_logging(level, as_json=settings.log_json)
    with failing_on(LocalServerError, ProgramError), stopped_by_ctrl_c():
        workflows = [d for d in documents if isinstance(d, Workflow)]
        by_function = match_servers(map(parse_server, servers), workflows)
        event_loop.run(_serve(documents, by_function, settings, gateway))


def _read(files: Sequence[Path], settings: Settings) -> list[Document]:
    """Read sound documents with a workflow; warn of one that cannot meet its SLO."""
    document_set, catalogue, sources = read_workflows(files)
    for problem in document_set.with_lines(unattainable(catalogue, sources, settings, None)):
        typer.echo(f"warning: {problem}", err=True)
    return [document for _, document in document_set.documents]


async def _serve(
    documents: Sequence[Document],
    by_function: dict[str, ServerAddress],
    settings: Settings,
    gateway: GatewaySettings,
) -> None:
    models = {d.spec.function: d.model for d in documents if isinstance(d, FunctionServer)}
    protocols = await asyncio.gather(
        *(_protocol_of(f, address, models.get(f, f)) for f, address in by_function.items())
    )
    servers = {f: (by_function[f], p) for f, p in zip(by_function, protocols, strict=True)}
    urls = [_url(d, gateway) for d in documents if isinstance(d, Workflow)]
    with tempfile.TemporaryDirectory(prefix="esg-local-") as folder:
        page = f"http://{_HOST}:{settings.health_port}"
        try:
            await run_local(
                local_store(documents, servers),
                settings,
                gateway,
                lambda: _print_addresses(urls, page, Path(folder)),
            )
        except ListenError as error:
            raise LocalServerError(
                f"{error}; set another by --port, that of the live page by ESG_HEALTH_PORT"
            ) from None


async def _protocol_of(function: str, address: ServerAddress, model: str) -> ServerProtocol:
    try:
        return await protocol_of(address, model)
    except LocalServerError as error:
        raise LocalServerError(f"--server {function}={error}") from None


def _url(workflow: Workflow, gateway: GatewaySettings) -> str:
    namespace, name = workflow.key
    path = "" if namespace == gateway.default_namespace else f"/{namespace}"
    return f"http://{_HOST}:{gateway.port}{path}/v2/models/{name}"


async def _print_addresses(urls: Sequence[str], page: str, folder: Path) -> None:
    """Print the workflows' URLs once they are ready, a request of the first, and the page."""
    async with aiohttp.ClientSession() as session:

        async def is_ready() -> bool:
            try:
                for url in urls:
                    async with session.get(f"{url}/ready") as answer:
                        if not answer.ok:
                            return False
            except aiohttp.ClientError:
                return False
            return True

        await wait_until(is_ready, "the gateway")
        for url in urls:
            typer.echo(url)
        async with session.get(urls[0]) as answer:
            metadata = await answer.json() if answer.ok else {"inputs": []}
    command = curl_command(urls[0], metadata, folder)
    if command:
        typer.echo(f"A first request:\n\n{command}\n")
    typer.echo(f"Live page: {page}")
    typer.echo(f"Why requests were late:\n\nesg why --from {page}\n")
    typer.echo("Ctrl-C ends it.")
