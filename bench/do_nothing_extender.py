"""An extender that only answers and binds: what any FastAPI extender costs at the least.

It decides nothing: every node passes, every score is equal. Its bind writes the Binding with the
very client code that ours uses, so that a comparison with ours shows what deciding costs.

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
    """The application."""
    apis: list[Api] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with connect(kubeconfig) as api:
            apis.append(api)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/filter")
    async def filter_nodes(args: dict[str, Any]) -> dict[str, Any]:
        """Every node passes."""
        return {"NodeNames": args["NodeNames"], "FailedNodes": {}, "Error": ""}

    @app.post("/prioritize")
    async def prioritize_nodes(args: dict[str, Any]) -> list[dict[str, Any]]:
        """Every node is as good as any."""
        return [{"Host": name, "Score": 0} for name in args["NodeNames"]]

    @app.post("/bind")
    async def bind_pod(args: dict[str, Any]) -> dict[str, str]:
        """One Binding, without annotations."""
        wanted = Binding(
            args["PodNamespace"], args["PodName"], args["PodUID"], args["Node"], annotations={}
        )
        result = await bind(apis[0], wanted, timeout_s=3.0)
        return {"Error": result.message if result.outcome.name == "REFUSED" else ""}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """From the beginning."""
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    uvicorn.run(
        create_app(sys.argv[2]), port=int(sys.argv[1]), log_level="warning", access_log=False
    )
