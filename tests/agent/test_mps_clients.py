"""Clients of MPS servers: their limits, and the end of those that outlive their server."""

import os
import subprocess
import sys
from contextlib import contextmanager
from math import inf

import pytest

from scheduler.agent.mps.clients import ClientReport, MpsClients
from scheduler.agent.pods.grants import GpuGrants, MpsLimits
from tests.agent.harness import until
from tests.agent.running_daemon import UUID, running_daemon

LIMITED = GpuGrants(frozenset({"uid-a"}), MpsLimits(40, 2048))
WHOLE = MpsLimits(100, 81_920)
SERVER, ANOTHER = 41, 42


@contextmanager
def processes(count):
    """Run processes that wait; end those that are left."""
    command = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def pods_of(owners):
    """Map processes to the UIDs of their pods."""
    return {process.pid: uid for process, uid in owners.items()}.get


@contextmanager
def client_of(daemons, **variables):
    """Run a client of the daemon; yield its process and its effective limits."""
    process = daemons.client(UUID, **variables)
    try:
        yield process, process.stdout.readline().split()
    finally:
        process.kill()
        process.communicate()


class TestEndedServer:
    """A client that outlives its server is ended, if it belongs to a granted pod."""

    @pytest.mark.parametrize("end", ["missing", "fault", "daemon"])
    def test_clients_of_granted_pods_end(self, end):
        """Its server is missing, in FAULT, or ended with its daemon; each is reported once."""
        with processes(3) as (first, second, foreign):
            owners = {first: "uid-a", second: "uid-a", foreign: "uid-b"}
            clients = MpsClients(pod_of=pods_of(owners))
            pids = [process.pid for process in owners]
            clients.observe({SERVER: pids})
            assert clients.report() == ClientReport(connected=3)
            assert clients.end_stale({"uid-a"}) == []
            match end:
                case "missing":
                    clients.observe({ANOTHER: []})
                case "fault":
                    for _ in range(2):
                        clients.observe({SERVER: pids}, faulty=[SERVER])
                case "daemon":
                    clients.lose_all()
            assert sorted(clients.end_stale({"uid-a"})) == sorted([first.pid, second.pid])
            assert [process.wait(60) for process in (first, second)] == [-9, -9]
            assert foreign.poll() is None
            assert clients.end_stale({"uid-a"}) == []
            report = clients.report()
        assert (report.stale, report.faults) == (1, 1)
        assert (dict(report.ended), report.ended_total) == ({"uid-a": 2}, 2)

    def test_a_process_without_a_pod_is_left(self):
        """It is stale as long as it runs: somebody else started it."""
        with processes(1) as [process]:
            clients = MpsClients(pod_of=lambda _: None)
            clients.observe({SERVER: [process.pid]})
            clients.lose_all()
            assert clients.end_stale({"uid-a"}) == []
            assert (clients.report().stale, process.poll()) == (1, None)
        assert clients.end_stale({"uid-a"}) == []
        assert clients.report().stale == 0

    def test_a_pod_that_becomes_known_later(self):
        """Its process is ended then."""
        with processes(1) as [process]:
            clients = MpsClients(pod_of=lambda _: "uid-a")
            clients.observe({SERVER: [process.pid]})
            clients.lose_all()
            assert clients.end_stale(()) == []
            assert clients.end_stale({"uid-a"}) == [process.pid]

    def test_a_reused_process_id_is_another_process(self, tmp_path):
        """The start time differs."""
        with processes(1) as [process]:
            clients = MpsClients(pod_of=lambda _: "uid-a", proc=tmp_path)
            folder = tmp_path / str(process.pid)
            folder.mkdir()
            stat = folder / "stat"
            stat.write_text(f"{process.pid} (a) b) S {' '.join('1' * 18)} 100 0")
            clients.observe({SERVER: [process.pid]})
            stat.write_text(f"{process.pid} (c) S {' '.join('1' * 18)} 200 0")
            clients.lose_all()
            assert clients.end_stale({"uid-a"}) == []
            assert (clients.report(), process.poll()) == (ClientReport(), None)

    def test_clients_that_disconnected_are_left(self):
        """Only clients of the last moment count."""
        with processes(1) as [process]:
            clients = MpsClients(pod_of=lambda _: "uid-a")
            clients.observe({SERVER: [process.pid]})
            clients.observe({SERVER: []})
            clients.lose_all()
            assert clients.end_stale({"uid-a"}) == []
            assert clients.report().faults == 0

    def test_a_client_that_only_nvml_lists(self):
        """It has connected after the last check."""
        with processes(2) as (old, new):
            clients = MpsClients(pod_of=lambda pid: "uid-a" if pid != os.getpid() else None)
            clients.observe({SERVER: [old.pid]})
            clients.set_processes([old.pid, new.pid, os.getpid()])
            clients.lose_all()
            assert sorted(clients.end_stale({"uid-a"})) == sorted([old.pid, new.pid])
            assert clients.report().stale == 3  # with this process, which has no pod

    @pytest.mark.parametrize("end", ["missing", "daemon"])
    def test_a_client_that_no_check_has_seen(self, end):
        """Its server ended at once: it is on the GPU, and no client of the next server."""
        with processes(3) as (unseen, reconnected, foreign):
            owners = {unseen: "uid-a", reconnected: "uid-a"}
            clients = MpsClients(pod_of=pods_of(owners), clock=lambda: inf)
            clients.observe({SERVER: []})
            if end == "daemon":
                clients.lose_all()
            clients.observe({ANOTHER: []})
            assert clients.end_stale({"uid-a"}) == []
            clients.set_processes([*(process.pid for process in owners), foreign.pid])
            clients.observe({ANOTHER: [reconnected.pid]})
            assert clients.end_stale({"uid-a"}) == [unseen.pid]
            assert unseen.wait(60) == -9
            assert (reconnected.poll(), foreign.poll()) == (None, None)
            assert clients.end_stale({"uid-a"}) == []
            report = clients.report()
        assert (report.stale, report.faults, report.ended_total) == (0, 1, 1)

    def test_a_process_that_started_after_the_end_of_the_server(self):
        """It may be on the GPU for a moment without being a client yet."""
        clients = MpsClients(pod_of=lambda _: "uid-a", clock=lambda: 0)
        clients.observe({SERVER: []})
        clients.observe({ANOTHER: []})
        with processes(1) as [process]:
            clients.set_processes([process.pid])
            clients.observe({ANOTHER: []})
            assert clients.end_stale({"uid-a"}) == []

    def test_an_old_process_long_after_the_end_of_the_server(self):
        """It is none of that server's clients: they would have been on the GPU all the time."""
        with processes(1) as [process]:
            clients = MpsClients(pod_of=lambda _: "uid-a", clock=lambda: inf)
            clients.observe({SERVER: []})
            clients.observe({ANOTHER: []})
            for _ in range(10):
                clients.set_processes([])
                clients.observe({ANOTHER: []})
            clients.set_processes([process.pid])
            clients.observe({ANOTHER: []})
            assert clients.end_stale({"uid-a"}) == []

    def test_counts_of_pods_without_a_grant_are_dropped(self):
        """The total stays."""
        with processes(1) as [process]:
            clients = MpsClients(pod_of=lambda _: "uid-a")
            clients.observe({SERVER: [process.pid]})
            clients.lose_all()
            clients.end_stale({"uid-a"})
        clients.end_stale({"uid-b"})
        report = clients.report()
        assert (dict(report.ended), report.ended_total) == ({}, 1)


@pytest.mark.slow
async def test_a_fault_ends_the_clients_and_the_server_recovers(daemons):
    """Without a restart of the daemon, because all its clients have ended."""
    async with running_daemon(daemons, pod_of=lambda _: "uid-a", mps_fault_grace_s=60) as running:
        await running.ready()
        running.daemon.set_grants(LIMITED)
        with client_of(daemons) as (process, _):
            await until(lambda: running.clients.report().connected == 1)
            daemons.fault(UUID, faulty=True)
            assert "FAULT" in (await running.unhealthy()).trouble
            assert (await running.ready()).restarts == 0
            assert process.wait(60) == -9
    assert len(daemons.starts(UUID)) == 1
    assert running.clients.report().faults == 1


@pytest.mark.slow
async def test_a_killed_daemon_leaves_no_client(daemons):
    """The next daemon starts without the old one's clients."""
    async with running_daemon(daemons, pod_of=lambda _: "uid-a") as running:
        await running.ready()
        running.daemon.set_grants(LIMITED)
        with client_of(daemons) as (process, _):
            await until(lambda: running.clients.report().connected == 1)
            daemons.kill(UUID)
            await running.ready(restarts=1)
            assert process.wait(60) == -9


@pytest.mark.slow
async def test_a_stopped_daemon_leaves_no_client(daemons):
    """At the end of `esg mps`, too."""
    async with running_daemon(daemons, pod_of=lambda _: "uid-a") as running:
        await running.ready()
        running.daemon.set_grants(LIMITED)
        process = daemons.client(UUID)
        await until(lambda: running.clients.report().connected == 1)
    assert process.wait(60) == -9
    process.communicate()


@pytest.mark.slow
async def test_a_server_that_ends_right_after_a_connect_leaves_no_client(daemons):
    """No check has seen its client, which NVML lists on the GPU."""
    async with running_daemon(daemons, pod_of=lambda _: "uid-a") as running:
        await running.ready()
        running.daemon.set_grants(LIMITED)
        daemons.fault(UUID, fragile=True)
        with client_of(daemons) as (process, _):
            daemons.fault(UUID)

            def has_ended():
                running.clients.set_processes([process.pid])
                return process.poll() is not None

            await until(has_ended)
            assert process.returncode == -9
        assert (running.clients.report().faults, len(daemons.servers(UUID))) == (1, 2)


@pytest.mark.slow
async def test_a_client_that_connects_during_a_check_is_left(daemons, monkeypatch):
    """NVML lists it before the check ends, the server's list of clients was read before."""
    with processes(1) as [process]:
        async with running_daemon(daemons, pod_of={process.pid: "uid-a"}.get) as running:
            await running.ready()
            running.daemon.set_grants(LIMITED)
            running.clients.observe({ANOTHER: []})  # has ended at the next check
            answers = []
            list_clients = running.daemon._control.clients

            async def clients(server):
                answer = [*await list_clients(server), *([process.pid] if len(answers) > 1 else [])]
                answers.append(answer)
                if len(answers) > 1:
                    running.clients.set_processes([process.pid])
                return answer

            monkeypatch.setattr(running.daemon._control, "clients", clients)
            await until(lambda: len(answers) > 4 or process.poll() is not None)
            assert (process.poll(), running.clients.report().ended_total) == (None, 0)


@pytest.mark.slow
async def test_a_client_without_variables_is_limited(daemons):
    """To the largest grant of the GPU; a client's own variables only lower it."""
    async with running_daemon(daemons) as running:
        await running.ready()
        with client_of(daemons) as (_, limits):
            assert limits == ["100", "1000000000"]
        running.daemon.set_grants(LIMITED)

        async def limited():
            await until(lambda: running.daemon.limits == LIMITED.limits)

        await limited()
        with client_of(daemons) as (_, limits):
            assert limits == ["40", "2048"]
        with client_of(
            daemons,
            CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="30",
            CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1024M",
        ) as (_, limits):
            assert limits == ["30", "1024"]
        with client_of(daemons, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="90") as (_, limits):
            assert limits == ["40", "2048"]
        # Its limits hold for a restarted daemon, and for a server of another user.
        daemons.kill(UUID)
        await running.ready(restarts=1)
        with client_of(daemons) as (_, limits):
            assert limits == ["40", "2048"]
        running.daemon.set_grants(GpuGrants())  # all pods have gone
        running.daemon.set_grants(GpuGrants(LIMITED.pods, WHOLE))  # the agent is silent
        await until(lambda: running.daemon.limits == WHOLE)
        with client_of(daemons) as (_, limits):
            assert limits == ["100", "81920"]


@pytest.mark.slow
async def test_limits_can_be_left_to_the_clients(daemons):
    """A setting, for drivers without these commands."""
    async with running_daemon(daemons, mps_limits=False) as running:
        await running.ready()
        running.daemon.set_grants(LIMITED)
        daemons.kill(UUID)
        await running.ready(restarts=1)
        with client_of(daemons) as (_, limits):
            assert limits == ["100", "1000000000"]


@pytest.mark.slow
async def test_refused_limits_are_logged_once(daemons, logged):
    """The GPU stays usable: the variables of its clients limit them."""
    daemons.fault(UUID, refuses=True)
    async with running_daemon(daemons) as running:
        await running.ready()
        running.daemon.set_grants(LIMITED)

        def refusals():
            return [entry for entry in logged if entry["event"] == "clients cannot be limited"]

        await until(refusals)
        with client_of(daemons):
            await until(lambda: running.clients.report().connected == 1)
        assert "does not confirm 40 %: 'Invalid command" in refusals()[0]["problem"]
        assert (len(refusals()), running.daemon.state.phase) == (1, "ready")
