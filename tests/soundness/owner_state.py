"""States of the model of ADR 34, and changes of them.

Server: the Lease, and each pod with its states by version. A request is in flight until it arrives,
at any later moment or never; its client may have given up or died.
"""

from typing import NamedTuple

ABSENT, UNBOUND, BOUND, ENDED = range(4)
PODS = (0, 1)
NAMES = ("p", "q")
CONFIRMED = -1
NOTHING, SENT, TO_READ = range(3)


class Request(NamedTuple):
    """A request in flight; `sender` 0: nobody waits for its answer."""

    kind: str  # bind, void, acquire, release
    subject: int  # the pod, or who acquires the Lease
    version: int  # of the pod or of the Lease
    sender: int


class Process(NamedTuple):
    """One process.

    Attributes:
        name: identity, another one after a restart.
        lease: version of the Lease as last read or written; -1: unknown.
        holder: of that version; 0: none.
        has_waited: for that version.
        trusted: version of its own last answered write, 0: none.
        is_listed: its cache and ledger begin with a list of this period.
        is_complete: its ledger has all that is bound or may be.
        cache: known version of each pod.
        ledger: of each pod: the version that it binds, `CONFIRMED`, or 0.
        duties: of each pod: its Bindings are being made void, or it must be read.
    """

    name: int
    lease: int = -1
    holder: int = 0
    has_waited: bool = False
    trusted: int = 0
    is_listed: bool = False
    is_complete: bool = False
    cache: tuple[int, ...] = (0, 0)
    ledger: tuple[int, ...] = (0, 0)
    duties: tuple[int, ...] = (0, 0)


class State(NamedTuple):
    """All processes, the server and the requests in flight.

    Attributes:
        pods: states of each pod, by version.
        lease: version of the Lease.
        holder: of the Lease; 0: none.
        untrusted: the newest version of the Lease that nobody trusts any more.
    """

    processes: tuple[Process, ...]
    pods: tuple[tuple[int, ...], ...]
    lease: int = 0
    holder: int = 0
    untrusted: int = 0
    requests: tuple[Request, ...] = ()
    faults: int = 0
    ends: int = 0


_OWNER = Process(1, lease=1, holder=1, trusted=1, is_listed=True, is_complete=True, cache=(1, 0))
# The first process has taken over from none; how it does that, the second one shows.
INITIAL = State((_OWNER, Process(2)), ((ABSENT, UNBOUND), (ABSENT,)), lease=1, holder=1)


def is_overcommitted(state: State) -> bool:
    """Tell if both pods are bound."""
    return all(history[-1] == BOUND for history in state.pods)


def may_overcommit(state: State) -> bool:
    """Tell if both pods are bound, or may be by a Binding that is in flight."""
    return all(
        history[-1] == BOUND
        or (
            history[-1] == UNBOUND
            and any(
                r.kind == "bind" and r.subject == pod and r.version == len(history) - 1
                for r in state.requests
            )
        )
        for pod, history in zip(PODS, state.pods, strict=True)
    )


UNLISTED = {"is_listed": False, "is_complete": False, "duties": (NOTHING,) * len(PODS)}


def account(process: Process, pod: int, version: int, status: int) -> Process:
    """Take in a version of a pod: reserve what is bound, release what is over or void."""
    if version < process.cache[pod]:
        return process
    held = process.ledger[pod]
    if status == BOUND:
        held = CONFIRMED
    elif status != UNBOUND or 0 < held < version:
        held = 0
    cache = put(process.cache, pod, version)
    return process._replace(cache=cache, ledger=put(process.ledger, pod, held))


def put(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def replace_process(state: State, number: int, process: Process) -> State:
    processes = list(state.processes)
    processes[number] = process
    return state._replace(processes=tuple(processes))


def write_pod(state: State, pod: int, status: int) -> State:
    pods = list(state.pods)
    pods[pod] = (*pods[pod], status)
    return state._replace(pods=tuple(pods))


def send(state: State, request: Request) -> State:
    return state._replace(requests=tuple(sorted((*state.requests, request))))


def remove_request(state: State, request: Request) -> State:
    requests = list(state.requests)
    requests.remove(request)
    return state._replace(requests=tuple(requests))


def forget_answers(state: State, name: int) -> State:
    """Let nobody wait for the answers to a process's patches of pods."""
    requests = (
        r._replace(sender=0) if r.sender == name and r.kind == "void" else r for r in state.requests
    )
    return state._replace(requests=tuple(sorted(requests)))


def process_number(state: State, name: int) -> int:
    """Return the index of a process, -1 where there is none of this name."""
    return next((n for n, process in enumerate(state.processes) if process.name == name), -1)


def describe_request(request: Request) -> str:
    subject = "the Lease" if request.kind in ("acquire", "release") else f"pod {request.subject}"
    return f"{request.kind} of {subject} in version {request.version}"
