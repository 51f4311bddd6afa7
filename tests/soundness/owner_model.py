"""A model of ADR 34: two processes, one GPU, two pods of 60 %.

Each step is atomic, and every order of steps is a run. Time is in one rule: a process that has
waited for a version of the Lease knows that nobody trusts this version any more.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.soundness.owner_state import (
    ABSENT,
    BOUND,
    ENDED,
    INITIAL,
    NAMES,
    NOTHING,
    PODS,
    SENT,
    TO_READ,
    UNBOUND,
    UNLISTED,
    Process,
    Request,
    State,
    account,
    describe_request,
    forget_answers,
    is_overcommitted,
    may_overcommit,
    process_number,
    put,
    remove_request,
    replace_process,
    send,
    write_pod,
)
from tests.soundness.state_search import StateSearch, search


@dataclass(frozen=True, slots=True)
class Rules:
    """Parts of the protocol, and bounds of the model.

    Attributes:
        voids: a new owner makes void what may still arrive.
        waits: a process waits until the holder of the Lease trusts it no more.
        lists: a new owner lists all pods.
        names_version: a Binding names the version of its pod.
        retries_as_owner: a process binds the pod of a refused Binding again only as the owner.
        faults: number of them.
        fault_kinds: what they are: a pod changes, a client gives up, a process restarts.
        ends: number of bound pods that end.
        lease_version: the last one of the Lease.
    """

    voids: bool = True
    waits: bool = True
    lists: bool = True
    names_version: bool = True
    retries_as_owner: bool = True
    faults: int = 0
    fault_kinds: tuple[str, ...] = ("change", "give up", "restart")
    ends: int = 0
    lease_version: int = 2


PARTS = ("voids", "waits", "lists", "names_version", "retries_as_owner")
SOUND = (
    Rules(ends=1),
    Rules(faults=1, fault_kinds=("restart",)),
    Rules(faults=1, fault_kinds=("give up",)),
    Rules(faults=1, fault_kinds=("change",)),
)


def without(part: str) -> Rules:
    """Return rules that lack a part, where nothing fails."""
    return replace(Rules(), **{part: False})


def explore(rules: Rules) -> StateSearch:
    """Search all states for one in which the GPU is over 100 %.

    With all rules, also for one in which a Binding in flight can bring it there.
    """
    is_whole = all(getattr(rules, part) for part in PARTS)
    is_bad = may_overcommit if is_whole else is_overcommitted
    return search(INITIAL, OwnerModel(rules).successors, is_bad)


class OwnerModel:
    """Steps of the model under some rules."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield each possible step and the state after it."""
        for number in range(len(state.processes)):
            yield from self._lease_steps(state, number)
            yield from self._pod_steps(state, number)
        for request in dict.fromkeys(state.requests):
            yield (
                f"{describe_request(request)} arrives",
                self._without_void(self._arrive(state, request)),
            )
        for step, successor in self._changes(state):
            yield step, self._without_void(successor)

    def _without_void(self, state: State) -> State:
        """Leave out requests that change nothing when they arrive, and that nobody waits for."""
        requests = tuple(r for r in state.requests if r.sender or self._is_accepted(state, r))
        return state if requests == state.requests else state._replace(requests=requests)

    def _is_accepted(self, state: State, request: Request) -> bool:
        if request.kind in ("acquire", "release"):
            return request.version == state.lease
        history = state.pods[request.subject]
        names_it = request.version == len(history) - 1 or (
            request.kind == "bind" and not self._rules.names_version
        )
        return names_it and history[-1] == UNBOUND

    # -- the server and its environment --------------------------------------------------------

    def _changes(self, state: State) -> Iterator[tuple[str, State]]:
        for pod in PODS:
            status = state.pods[pod][-1]
            if status == ABSENT:
                yield f"pod {pod} is created", write_pod(state, pod, UNBOUND)
            if status == BOUND and state.ends < self._rules.ends:
                yield f"pod {pod} ends", write_pod(state, pod, ENDED)._replace(ends=state.ends + 1)
        if state.faults < self._rules.faults:
            for kind, step, successor in self._faults(state._replace(faults=state.faults + 1)):
                if kind in self._rules.fault_kinds:
                    yield step, successor

    def _faults(self, state: State) -> Iterator[tuple[str, str, State]]:
        for pod in PODS:
            if state.pods[pod][-1] == UNBOUND:
                yield "change", f"pod {pod} changes", write_pod(state, pod, UNBOUND)
        for request in dict.fromkeys(state.requests):
            if request.sender:
                step = f"the sender of {describe_request(request)} gives up"
                yield "give up", step, self._give_up(state, request)
        for number, process in enumerate(state.processes):
            orphans = (
                r._replace(sender=0) if r.sender == process.name else r for r in state.requests
            )
            reborn = replace_process(state, number, Process(process.name + len(state.processes)))
            reborn = reborn._replace(requests=tuple(sorted(orphans)))
            yield "restart", f"{NAMES[number]} restarts", reborn

    def _give_up(self, state: State, request: Request) -> State:
        state = send(remove_request(state, request), request._replace(sender=0))
        number = process_number(state, request.sender)
        process = state.processes[number]
        if request.kind in ("acquire", "release"):
            return replace_process(state, number, process._replace(lease=-1))
        if request.kind == "bind":
            return state  # its outcome is unknown: the share stays
        process = process._replace(duties=put(process.duties, request.subject, NOTHING))
        if not process.is_complete:  # the hand-over begins again
            process = process._replace(is_listed=False, duties=(NOTHING,) * len(PODS))
        return replace_process(state, number, process)

    def _arrive(self, state: State, request: Request) -> State:
        """Let a request arrive; its answer, if somebody waits for it, comes at once."""
        state = remove_request(state, request)
        sender = process_number(state, request.sender)
        if request.kind in ("acquire", "release"):
            return self._write_lease(state, request, sender)
        pod = request.subject
        is_accepted = self._is_accepted(state, request)
        if is_accepted:
            state = write_pod(state, pod, BOUND if request.kind == "bind" else UNBOUND)
        if sender < 0:
            return state
        process = state.processes[sender]
        if is_accepted and request.kind == "void":  # the answer has the pod
            process = self._read(state, process, pod)
        elif is_accepted:
            process = account(process, pod, request.version + 1, BOUND)
        elif request.kind == "void" or process.duties[pod] == NOTHING:
            process = process._replace(duties=put(process.duties, pod, TO_READ))
        return replace_process(state, sender, process)

    def _write_lease(self, state: State, request: Request, sender: int) -> State:
        is_accepted = self._is_accepted(state, request)
        if is_accepted:
            holder = request.subject if request.kind == "acquire" else 0
            state = state._replace(lease=state.lease + 1, holder=holder)
        if sender < 0:
            return state
        process = state.processes[sender]
        if not is_accepted:
            return replace_process(state, sender, process._replace(lease=-1))
        process = process._replace(lease=state.lease, holder=process.name, has_waited=False)
        if request.kind == "acquire":
            process = process._replace(trusted=state.lease)
        return replace_process(state, sender, process)

    # -- the Lease -----------------------------------------------------------------------------

    def _lease_steps(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        process, name = state.processes[number], NAMES[number]
        if process.lease != state.lease:
            process = process._replace(lease=state.lease, holder=state.holder, has_waited=False)
            if state.holder != process.name:  # a new period will begin
                process = process._replace(trusted=0, **UNLISTED)
                state = forget_answers(state, process.name)
            yield f"{name} reads the Lease", replace_process(state, number, process)
            return
        is_own = process.holder == process.name
        if not is_own and process.holder and not process.has_waited and self._rules.waits:
            waited = replace_process(state, number, process._replace(has_waited=True))
            untrusted = max(state.untrusted, process.lease)
            yield f"{name} has waited for the Lease", waited._replace(untrusted=untrusted)
        kinds = {r.kind for r in state.requests if r.sender == process.name}
        if state.lease == self._rules.lease_version or kinds & {"acquire", "release"}:
            return
        if is_own or not process.holder or process.has_waited or not self._rules.waits:
            request = Request("acquire", process.name, process.lease, process.name)
            yield f"{name} sends {describe_request(request)}", send(state, request)
        if is_own and process.trusted:
            request = Request("release", process.name, process.lease, process.name)
            released = replace_process(state, number, process._replace(trusted=0))
            yield f"{name} sends {describe_request(request)}", send(released, request)

    # -- pods ----------------------------------------------------------------------------------

    def _pod_steps(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        process, name = state.processes[number], NAMES[number]
        is_owner = process.trusted > (state.untrusted if self._rules.waits else 0)
        if not process.is_listed and is_owner:
            yield f"{name} takes over", self._take_over(state, number)
        if process.is_listed or not self._rules.lists:
            yield from self._watch_steps(state, number)
        if not process.is_listed:
            return
        for pod in PODS:
            version, duty = process.cache[pod], process.duties[pod]
            if duty == TO_READ:
                yield (
                    f"{name} reads pod {pod}",
                    replace_process(state, number, self._read(state, process, pod)),
                )
                if process.ledger[pod] > 0 and (is_owner or not self._rules.retries_as_owner):
                    yield from self._retry(state, number, pod)
            elif duty == NOTHING and process.ledger[pod] > 0:
                if not any(r.kind == "bind" and r.sender == process.name for r in state.requests):
                    request = Request("void", pod, process.ledger[pod], process.name)
                    sent = process._replace(duties=put(process.duties, pod, SENT))
                    yield (
                        f"{name} sends {describe_request(request)}",
                        send(replace_process(state, number, sent), request),
                    )
            elif (
                is_owner
                and process.is_complete
                and duty == NOTHING
                and state.pods[pod][version] == UNBOUND
                and not any(process.ledger)
            ):
                reserved = process._replace(ledger=put(process.ledger, pod, version))
                request = Request("bind", pod, version, process.name)
                yield (
                    f"{name} sends {describe_request(request)}",
                    send(replace_process(state, number, reserved), request),
                )

    def _retry(self, state: State, number: int, pod: int) -> Iterator[tuple[str, State]]:
        """Read the pod of a refused Binding and bind it at once, if it is unbound in a new version.

        Between the read and the look at the Lease nothing is awaited.
        """
        process = self._read(state, state.processes[number], pod)
        version = process.cache[pod]
        if state.pods[pod][version] == UNBOUND and process.is_complete and not any(process.ledger):
            reserved = process._replace(ledger=put(process.ledger, pod, version))
            request = Request("bind", pod, version, process.name)
            step = f"{NAMES[number]} reads pod {pod} and sends {describe_request(request)}"
            yield step, send(replace_process(state, number, reserved), request)

    def _watch_steps(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        process = state.processes[number]
        for pod in PODS:
            version = process.cache[pod] + 1
            if version < len(state.pods[pod]):
                seen = account(process, pod, version, state.pods[pod][version])
                step = f"{NAMES[number]}'s watch shows pod {pod}"
                yield step, replace_process(state, number, seen)

    def _take_over(self, state: State, number: int) -> State:
        """List all pods, and send what makes their Bindings void."""
        process = state.processes[number]._replace(is_listed=True)
        if self._rules.lists:
            for pod in PODS:
                version = len(state.pods[pod]) - 1
                process = account(process, pod, version, state.pods[pod][version])
        for pod in PODS if self._rules.voids else ():
            if state.pods[pod][process.cache[pod]] == UNBOUND:
                process = process._replace(duties=put(process.duties, pod, SENT))
                state = send(state, Request("void", pod, process.cache[pod], process.name))
        process = process._replace(is_complete=not any(process.duties))
        return replace_process(state, number, process)

    def _read(self, state: State, process: Process, pod: int) -> Process:
        """Take in a pod as it is at the server, and end the duty for it."""
        version = len(state.pods[pod]) - 1
        process = account(process, pod, version, state.pods[pod][version])
        process = process._replace(duties=put(process.duties, pod, NOTHING))
        return process._replace(is_complete=process.is_complete or not any(process.duties))
