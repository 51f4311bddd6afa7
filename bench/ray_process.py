"""Ray Serve's proxy in front of a do-nothing replica, for the benchmark.

    build/ray/bin/python bench/ray_process.py PORT ANSWER_BYTES FOLDER

One node on the loopback, with Ray's own settings but for two, which would cost it more: a replica
takes all requests at once (the default is 5), and there is no log of requests. FOLDER receives its
sessions.
"""

import signal
import sys

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

ONGOING_MAX = 64
LOGGING = {"enable_access_log": False, "log_level": "WARNING"}
STORE_BYTES = 100 * 2**20


class DoNothing:
    """Model that receives a request and answers with zeros."""

    def __init__(self, answer_bytes: int) -> None:
        self._answer = bytes(answer_bytes)

    async def __call__(self, request: Request) -> Response:
        await request.body()
        return Response(self._answer, media_type="application/octet-stream")


def main() -> None:
    """Serve until SIGTERM."""
    port, answer_bytes = map(int, sys.argv[1:3])
    with ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=STORE_BYTES,
        log_to_driver=False,
        logging_level="WARNING",
        _temp_dir=sys.argv[3],
    ):
        serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config=LOGGING)
        deployment = serve.deployment(
            DoNothing, max_ongoing_requests=ONGOING_MAX, logging_config=LOGGING
        )
        serve.run(deployment.bind(answer_bytes))
        signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main()
