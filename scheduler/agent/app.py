"""The agent's process: its health server, and the signals that end it."""

from collections.abc import AsyncIterator

from prometheus_client import generate_latest

from scheduler.agent.service import Agent
from scheduler.agent.settings import AgentSettings
from scheduler.server import event_loop
from scheduler.server.health_server import HealthServer, HealthSource


def health_source(agent: Agent) -> HealthSource:
    """Answers of an agent to probes and Prometheus."""

    async def exposition() -> AsyncIterator[bytes]:
        yield generate_latest(agent.metrics.registry)

    return HealthSource(
        fatal_error=agent.unhealthy_reason,
        not_ready_reason=agent.not_ready_reason,
        exposition=exposition,
    )


async def serve(agent: Agent, settings: AgentSettings) -> None:
    """Run the agent and its health server, until SIGTERM or SIGINT.

    Raises:
        ListenError: the address is in use, or does not belong to this machine.
        ClusterConfigError: no usable API server, or no valid node name, is configured.
    """
    stop = event_loop.stop_event()
    health = HealthServer(
        health_source(agent),
        (settings.host, settings.port),
        on_exit=lambda _: stop.set(),  # without it nobody learns of the agent's health
        variables="ESG_AGENT_HOST, ESG_AGENT_PORT",
    )
    async with health.running():
        await agent.run(stop)
