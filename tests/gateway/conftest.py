"""The event loop that the gateway runs on."""

import uvloop


def pytest_asyncio_loop_factories(config, item):
    """Run on uvloop, whose transports the data path is written for."""
    return {"uvloop": uvloop.new_event_loop}
