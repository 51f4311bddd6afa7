"""Invariants of the gateway at the end of a run that is quiet."""

from collections.abc import Iterator

from tests.campaign.gateway_documents import NAMESPACE
from tests.campaign.gateway_replica import GatewayLife
from tests.campaign.gateways import Gateways

OUTCOMES = {"answered", "refused", "broken", "given up"}


def gateway_problems(gateways: Gateways) -> Iterator[str]:
    """Yield what is wrong with the gateway."""
    yield from gateways.models.violations
    for request in gateways.requests:
        if request.outcome not in OUTCOMES:
            yield f"request {request.number} has no outcome: {request.outcome!r}"
        if request.problem:
            yield f"request {request.number}: {request.problem}"
    for pod in gateways.pods():
        yield f"pod {pod['metadata']['name']} of a FunctionServer is left"
    lives = [replica.life for replica in gateways.replicas.values()]
    for name, replica in gateways.replicas.items():
        if replica.life is None:
            yield f"replica {name} of the gateway is down"
        else:
            yield from _state(replica.life)
        for life in replica.lives:
            yield from _metrics(gateways, life)
    owners = [
        life.name
        for life in lives
        if life is not None
        and life.service.replicas is not None
        and life.service.replicas.owned.serves(NAMESPACE)
    ]
    if len(owners) != 1:
        yield f"namespace {NAMESPACE} is served by {owners}"


def _state(life: GatewayLife) -> Iterator[str]:
    """A replica at rest is ready, and neither requests nor pods are left in it."""
    service = life.service
    if reason := service.not_ready_reason():
        yield f"gateway {life.name} is not ready: {reason}"
    if any(service.runtime.queued_rows().values()):
        yield f"gateway {life.name} has rows in its queues"
    if names := [pod.name for pod in service.runtime.dispatcher.pods]:
        yield f"gateway {life.name} dispatches to pods that are gone: {names}"


def _metrics(gateways: Gateways, life: GatewayLife) -> Iterator[str]:
    """Every answered call is counted once, and no batch that was not answered."""
    samples = [s for family in life.service.metrics.registry.collect() for s in family.samples]
    counted = sum(
        sample.value
        for sample in samples
        if sample.name == "esg_workflow_requests_total" and sample.labels["result"] != "dropped"
    )
    if counted != life.answered:
        yield f"metrics of gateway {life.name}: {counted:g} answers, not {life.answered}"
    batches = sum(s.value for s in samples if s.name == "esg_batch_size_count")
    if batches > (answered := gateways.models.answered[life]):
        yield f"metrics of gateway {life.name}: {batches:g} batches, {answered} were answered"
    if reason := life.service.fatal_error:
        yield f"gateway {life.name}: {reason}"
