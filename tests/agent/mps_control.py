"""A fake nvidia-cuda-mps-control, without a GPU.

Like the real one: ``-f`` serves in the foreground, ``-d`` in the background, and without arguments
it sends commands from standard input to the daemon of $CUDA_MPS_PIPE_DIRECTORY. It does not start
with leftovers of another daemon. A requested server is ACTIVE at once and stays; ``server.log`` in
the log directory lists the servers' users. Each command reads faults from the JSON file
``fault.json`` next to the pipe directory:

    {"servers": {"4711": "FAULT"}, "ended": 0, "hangs": false, "ends": false}

where ``ended`` is the number of requested servers that have ended.

Run with `python -I -S`: it imports only the standard library and starts within milliseconds.
"""

import json
import os
import signal
import socket
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


def faults():
    try:
        return json.loads(FAULTS.read_text())
    except FileNotFoundError:
        return {}


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


def answer(command, started):
    """Return the answer to a command, or None to quit; add started servers to ``started``."""
    current = faults()
    servers = current.get("servers", dict(list(started.items())[current.get("ended", 0) :]))
    match command.split():
        case ["start_server", "-uid", uid]:
            started[str(40_000 + len(started))] = "ACTIVE"
            with (LOG / "server.log").open("a") as lines:
                lines.write(f"{uid}\n")
            return ""
        case ["get_server_list"]:
            return "".join(f"{pid}\n" for pid in servers)
        case ["get_server_status", pid]:
            return f"{servers.get(pid, 'no such server')}\n"
        case ["quit", *_]:
            return None
    return "Invalid command\n"


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
        started = {}
        while True:
            client, _ = listener.accept()
            with client:
                while faults().get("hangs"):
                    time.sleep(0.01)
                if faults().get("ends"):
                    return 3
                commands = client.makefile().read().splitlines()
                answers = [answer(command, started) for command in commands]
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
