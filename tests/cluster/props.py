"""What the tests of the cluster room play with: virtual time, a listener, objects."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from scheduler.cluster.api import Raw
from scheduler.cluster.resource import FUNCTION_PROFILES, WORKFLOWS
from tests.testbed.api import ApiError, wait_until
from tests.testbed.control_plane import ControlPlane

DOCUMENTS = (WORKFLOWS, FUNCTION_PROFILES)


class VirtualTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        """Seconds."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let others run, and move the clock."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Listener:
    """A handler that keeps what it is told, and can be waited for."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.objects: dict[str, Raw] = {}
        self.fail_on: Callable[[str, str], bool] = lambda _verb, _name: False

    def replace(self, items: Iterable[Raw]) -> None:
        """As `Handler.replace`."""
        if self.fail_on("replace", ""):
            raise RuntimeError("the handler broke on the list")
        self.objects = {item["metadata"]["name"]: item for item in items}
        self.told.put_nowait(("replace", sorted(self.objects)))

    def upsert(self, item: Raw) -> None:
        """As `Handler.upsert`."""
        name = item["metadata"]["name"]
        if self.fail_on("upsert", name):
            raise RuntimeError(f"the handler broke on {name}")
        self.objects[name] = item
        self.told.put_nowait(("upsert", name))

    def delete(self, item: Raw) -> None:
        """As `Handler.delete`."""
        name = item["metadata"]["name"]
        self.objects.pop(name, None)
        self.told.put_nowait(("delete", name))

    async def next(self) -> tuple[str, Any]:
        """The next thing that it is told."""
        async with asyncio.timeout(60):
            return await self.told.get()


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until it is so: for what nobody tells of."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)


@asynccontextmanager
async def running(service: Any) -> AsyncIterator[None]:
    """Let ``service.run()`` run during the block."""
    task = asyncio.create_task(service.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def wait_for_storage(plane: ControlPlane) -> None:
    """Wait until our documents can be listed, where their CRDs are: 429 until a second or so."""

    def answers() -> bool:
        try:
            return all(plane.api.items(kind.path) is not None for kind in DOCUMENTS)
        except ApiError as error:
            return error.status == HTTPStatus.NOT_FOUND

    wait_until(answers, what="the documents' storage")


def kubeconfig_for(
    url: str,
    folder: Path,
    user: Raw | None = None,
    *,
    ca: Path | None = None,
    proxy: str | None = None,
) -> str:
    """A kubeconfig that leads to ``url``, over ``proxy``; ``ca`` is a file of certificates."""
    cluster = {"server": url}
    if ca is not None:
        cluster["certificate-authority"] = str(ca)
    if proxy is not None:
        cluster["proxy-url"] = proxy
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user or {"token": "sesame"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def pod(name: str, *, namespace: str = "default", uid: str = "", **spec: Any) -> Raw:
    """A pod of one container."""
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


def node(name: str) -> Raw:
    """A node without GPUs."""
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8"}}}
