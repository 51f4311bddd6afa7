"""Asks an installation whether it works; `helm test` runs this in a pod of the project's image.

Two questions, for the two ways in. Is a replica ready? And, by a pod that is made on trial alone:
does the API server reach the webhook, does it trust its certificate, and does the webhook plan?
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

PATIENCE_S = 60.0
PAUSE_S = 2.0
ANSWER_S = 15.0
ACCOUNT = Path(os.environ["SERVICE_ACCOUNT"])
# A function that nobody profiles: the webhook alone can know that, and it lets no pod of it in.
FUNCTION = "esg-scheduler-installation-test"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": FUNCTION, "labels": {"esg-scheduler.io/function": FUNCTION}},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


class NotOkError(Exception):
    """It does not work; the message says what, and where to look."""


def answered(
    request: urllib.request.Request, context: ssl.SSLContext | None = None
) -> tuple[int, str]:
    """Status and text of an answer, whatever it is."""
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S, context=context) as answer:  # noqa: S310 - of our own making
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def replica_is_ready() -> str:
    """A replica answers on its observe port that it may decide."""
    url = f"{os.environ['OBSERVE_URL']}/readyz"
    status, text = answered(urllib.request.Request(url))  # noqa: S310 - of our own making
    if status != HTTPStatus.OK:
        raise NotOkError(f"{url}: {status} {text}")
    return f"{url}: {text}"


def webhook_is_asked() -> str:
    """A dry run of a function pod comes back with the webhook's own refusal."""
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
    status, text = answered(request, context)
    if status == HTTPStatus.CREATED:
        raise NotOkError("the API server does not ask the webhook: a function pod was let in")
    message = json.loads(text).get("message", text)
    if "has no FunctionProfile" not in message:
        raise NotOkError(f"the API server cannot ask the webhook: {message}")
    return "the API server asks the webhook, and takes its answer"


def main() -> int:
    """Ask, for a minute where the answer is no; 0 if all is well at last."""
    give_up_at = time.monotonic() + PATIENCE_S
    for ask in (replica_is_ready, webhook_is_asked):
        while True:
            try:
                told = ask()
            except (NotOkError, OSError) as error:
                if time.monotonic() > give_up_at:
                    sys.stdout.write(f"not ok: {error}\n")
                    return 1
                time.sleep(PAUSE_S)
            else:
                sys.stdout.write(f"ok: {told}\n")
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())
