"""Settings of the commands that run on every node: ``esg agent`` and ``esg mps``."""

from scheduler.agent.settings import AgentSettings
from scheduler.cli.environment import from_environment
from scheduler.cli.logs import configure_logging


def read_agent_settings() -> AgentSettings:
    """Read the settings from the environment and configure logging; exit on an invalid value."""
    settings = from_environment(AgentSettings)
    configure_logging(settings.log_level, as_json=settings.log_json)
    return settings
