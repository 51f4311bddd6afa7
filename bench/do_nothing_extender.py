"""An extender that only answers and binds: the minimal cost of any FastAPI extender.

It takes no decision: every node passes, every score is equal. Its bind uses the same client code as
ours, so the difference to ours is the cost of the decision.

    python -m bench.do_nothing_extender PORT KUBECONFIG
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from scheduler.cluster.api import Api, connect
from scheduler.cluster.binding import Binding, bind


def create_app(kubeconfig: str) -> FastAPI:
    """Build the application."""
    apis: list[Api] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with connect(kubeconfig) as api:
            apis.append(api)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/filter")
    async def filter_nodes(args: dict[str, Any]) -> dict[str, Any]:
        """Pass every node."""
        return {"NodeNames": args["NodeNames"], "FailedNodes": {}, "Error": ""}

    @app.post("/prioritize")
    async def prioritize_nodes(args: dict[str, Any]) -> list[dict[str, Any]]:
        """Score all nodes equally."""
        return [{"Host": name, "Score": 0} for name in args["NodeNames"]]

    @app.post("/bind")
    async def bind_pod(args: dict[str, Any]) -> dict[str, str]:
        """Write one Binding without annotations."""
        binding = Binding(
            args["PodNamespace"], args["PodName"], args["PodUID"], args["Node"], annotations={}
        )
        result = await bind(apis[0], binding, timeout_s=3.0)
        return {"Error": result.message if result.outcome.name == "REFUSED" else ""}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Ready from the beginning."""
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    uvicorn.run(
        create_app(sys.argv[2]), port=int(sys.argv[1]), log_level="warning", access_log=False
    )
