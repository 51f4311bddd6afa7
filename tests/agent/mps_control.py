"""A fake nvidia-cuda-mps-control, without a GPU.

Like the real one: ``-f`` serves in the foreground, ``-d`` in the background, and without arguments
it sends commands from standard input to the daemon of $CUDA_MPS_PIPE_DIRECTORY. It does not start
with leftovers of another daemon. A requested server is ACTIVE at once and stays; ``server.log`` in
the log directory lists the servers' users. Each command reads faults from the JSON file
``fault.json`` next to the pipe directory:

    {"servers": {"4711": "FAULT"}, "ended": 0, "faulty": false, "hangs": false, "ends": false,
     "refuses": false, "fragile": false}

where ``ended`` is the number of requested servers that have ended, a ``faulty`` daemon's servers
are in FAULT while they have clients, one that ``refuses`` knows no command of a limit, and a
``fragile`` one's server ends right after a connect.

A client is a process that runs ``connect PERCENT MIB`` with the limits of its environment, 0 for a
limit that is not set. It is a client of the newest server until its process ends, and the answer
has its effective limits: the lower of its own and the server's at that moment.

Run with `python -I -S`: it imports only the standard library and starts within milliseconds.
"""

import json
import os
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
SOCKET = PIPE / "control"
PID = PIPE / "nvidia-cuda-mps-control.pid"
LOG = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", PIPE.parent / "log"))
FAULTS = PIPE.parent / "fault.json"
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
UNLIMITED_MIB = 10**9


def faults():
    try:
        return json.loads(FAULTS.read_text())
    except FileNotFoundError:
        return {}


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def send():
    """Send the commands to the daemon; return 1 without a daemon."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(SOCKET))
            connection.sendall(sys.stdin.buffer.read())
            connection.shutdown(socket.SHUT_WR)
            while output := connection.recv(4096):
                sys.stdout.buffer.write(output)
    except OSError:
        sys.stdout.write("Cannot find MPS control daemon process\n")
        return 1
    return 0


class Daemon:
    """The daemon's servers, their limits and their clients."""

    def __init__(self):
        self.started = {}
        self.default = {"percent": 100.0, "mib": UNLIMITED_MIB}
        self.limits = {}  # by server
        self.clients = {}  # process id: its server

    def servers(self):
        """Map servers to their status."""
        current = faults()
        started = dict(list(self.started.items())[current.get("ended", 0) :])
        if current.get("faulty"):
            return {pid: "FAULT" if self.clients_of(pid) else of for pid, of in started.items()}
        return current.get("servers", started)

    def clients_of(self, server):
        self.clients = {pid: of for pid, of in self.clients.items() if alive(pid)}
        return [pid for pid, of in self.clients.items() if of == server]

    def answer(self, command, peer):
        """Return the answer to a command of a process, or None to quit."""
        name, *arguments = command.split()
        if name == "quit":
            return None
        if "percentage" in name or "limit" in name:
            return "Invalid command\n" if faults().get("refuses") else self.limit(name, arguments)
        servers = self.servers()
        match name, *arguments:
            case ["start_server", "-uid", uid]:
                answer = self.start(uid)
            case ["get_server_list"]:
                answer = servers
            case ["get_server_status", server]:
                answer = [servers.get(server, "no such server")]
            case ["get_client_list", server]:
                answer = self.clients_of(server)
            case ["connect", percent, mib] if "ACTIVE" in servers.values():
                answer = self.connect(peer, float(percent), int(mib), list(servers)[-1])
            case _:
                answer = ["Invalid command"]
        return "".join(f"{line}\n" for line in answer)

    def start(self, uid):
        """Start a server for a user."""
        server = str(40_000 + len(self.limits))
        self.started[server] = "ACTIVE"
        self.limits[server] = dict(self.default)
        with (LOG / "server.log").open("a") as lines:
            lines.write(f"{uid}\n")
        return []

    def limit(self, name, arguments):
        """Answer a command of limits: the default ones, or those of a server."""
        if name == "get_default_active_thread_percentage":
            return f"{self.default['percent']}\n"
        limits = self.default
        if "default" not in name:
            server, *arguments = arguments
            limits = self.limits.setdefault(server, {})
        match name.replace("default_", ""), *arguments:
            case ["set_active_thread_percentage", percent]:
                limits["percent"] = float(percent)
                return f"{float(percent)}\n"
            case ["set_device_pinned_mem_limit", "0", size]:
                limits["mib"] = int(size.removesuffix("M"))
                return ""
        return "Invalid command\n"

    def connect(self, peer, percent, mib, server):
        """Add a client of the server; return its effective limits."""
        self.clients[peer] = server
        if faults().get("fragile"):
            del self.started[server]
        limits = {**self.default, **self.limits.get(server, {})}
        percent = min(limits["percent"], percent or 100)
        return [f"{percent:g} {min(limits['mib'], mib or UNLIMITED_MIB)}"]


def serve():
    """Answer commands until one of them is quit."""
    if PID.exists() or SOCKET.exists():
        sys.stderr.write("An instance of this daemon is already running\n")
        return 1
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(SOCKET))
        SOCKET.chmod(0o666)  # for clients of any user
        PID.write_text(str(os.getpid()))
        shm = Path("/dev/shm").stat().st_ino
        with (LOG / "control.log").open("a") as lines:
            variables = {name: os.environ.get(name) for name in VARIABLES}
            lines.write(json.dumps({**variables, "arguments": sys.argv[1:], "shm": shm}) + "\n")
        listener.listen()
        daemon = Daemon()
        while True:
            client, _ = listener.accept()
            with client:
                while faults().get("hangs"):
                    time.sleep(0.01)
                if faults().get("ends"):
                    return 3
                credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                peer, _, _ = struct.unpack("3i", credentials)
                commands = client.makefile().read().splitlines()
                answers = [daemon.answer(command, peer) for command in commands]
                if None in answers:
                    PID.unlink()
                    SOCKET.unlink()
                    return 0
                with suppress(OSError):  # the client was killed
                    client.sendall("".join(answers).encode())


def main():
    match sys.argv[1:]:
        case []:
            return send()
        case ["-d", *_]:
            return 0 if os.fork() else serve()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return serve()


if __name__ == "__main__":
    sys.exit(main())
