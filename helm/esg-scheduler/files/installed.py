"""Check of an installation; `helm test` runs this in a pod of the project's image.

It checks that a replica is ready, and by a dry run of a function pod that the API server reaches
the webhook and trusts its certificate, and that the webhook plans.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path

TIMEOUT_S = 60.0
PAUSE_S = 2.0
REQUEST_TIMEOUT_S = 15.0
ACCOUNT = Path(os.environ["SERVICE_ACCOUNT"])
# A function without a profile: only the webhook knows that, and it rejects its pods.
FUNCTION = "esg-scheduler-installation-test"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": FUNCTION, "labels": {"esg-scheduler.io/function": FUNCTION}},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


class CheckError(Exception):
    """Failed check; the message has the reason."""


def send(request: urllib.request.Request, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Send a request and return status and text of any response."""
    try:
        with urllib.request.urlopen(  # noqa: S310 - the URL is built here
            request, timeout=REQUEST_TIMEOUT_S, context=context
        ) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def check_replica() -> str:
    """Check that a replica is ready, on its health port."""
    url = f"{os.environ['HEALTH_URL']}/readyz"
    status, text = send(urllib.request.Request(url))  # noqa: S310 - the URL is built here
    if status != HTTPStatus.OK:
        raise CheckError(f"{url}: {status} {text}")
    return f"{url}: {text}"


def check_webhook() -> str:
    """Check that the webhook rejects a dry run of a function pod."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    namespace = os.environ["NAMESPACE"]
    token = (ACCOUNT / "token").read_text(encoding="utf-8")
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    request = urllib.request.Request(
        f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods?dryRun=All",
        data=json.dumps(POD).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    status, text = send(request, context)
    if status == HTTPStatus.CREATED:
        raise CheckError(
            f"the API server does not call the webhook: it admitted a function pod in {namespace}; "
            "webhook.namespaceSelector, if set, has to select that namespace"
        )
    message = json.loads(text).get("message", text)
    if "has no FunctionProfile" not in message:
        raise CheckError(f"the API server cannot call the webhook: {message}")
    return "the API server calls the webhook and uses its answer"


def main() -> int:
    """Run the checks and retry a failed one for a minute; return 0 if all pass."""
    deadline_s = time.monotonic() + TIMEOUT_S
    for check in (check_replica, check_webhook):
        while True:
            try:
                result = check()
            except (CheckError, OSError) as error:
                if time.monotonic() > deadline_s:
                    sys.stdout.write(f"not ok: {error}\n")
                    return 1
                time.sleep(PAUSE_S)
            else:
                sys.stdout.write(f"ok: {result}\n")
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())
