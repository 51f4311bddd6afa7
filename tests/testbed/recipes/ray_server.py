"""A deployment of Ray Serve with an ingress that speaks the protocol, as docs/gateway.md has it.

    python ray_server.py PORT

It runs on a Ray cluster of its own, in this process's session.
"""

import sys
import time
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve

app = FastAPI()


@serve.deployment(num_replicas=1, ray_actor_options={"num_gpus": 0})
@serve.ingress(app)
class Doubling:
    """Answers ``y`` = 2 ``x``."""

    @app.get("/v2/models/doubling/ready")
    def ready(self) -> dict[str, bool]:
        """Tell that the model is ready."""
        return {"ready": True}

    @app.post("/v2/models/doubling/infer")
    async def infer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Run the rows as one batch."""
        x = body["inputs"][0]
        y = {"name": "y", "datatype": x["datatype"], "shape": x["shape"]}
        y["data"] = [2 * value for value in x["data"]]
        return {"model_name": "doubling", "outputs": [y]}


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Doubling.bind(), route_prefix="/")
    while True:
        time.sleep(60)
