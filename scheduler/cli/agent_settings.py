"""The settings of what runs on every node: ``esg agent`` and ``esg mps``."""

import typer
from pydantic import ValidationError

from scheduler.agent.settings import AgentSettings
from scheduler.cli.logs import configure_logging


def read_agent_settings() -> AgentSettings:
    """The environment's settings, logging set by them; a wrong one ends the command."""
    try:
        settings = AgentSettings()
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            name = "_".join(str(part) for part in detail["loc"]).upper()
            typer.echo(
                f"error: ESG_AGENT_{name}: {detail['msg']} (given: {detail['input']!r})", err=True
            )
        raise typer.Exit(2) from None
    configure_logging(settings.log_level, as_json=settings.log_json)
    return settings
