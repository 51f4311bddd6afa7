"""A nvidia-cuda-mps-control without a GPU.

As the real one: ``-f`` serves in the foreground, ``-d`` in the background, and without arguments
commands come from standard input and go to the daemon of $CUDA_MPS_PIPE_DIRECTORY. It will not
start where another has left its files. A server that is asked for is ACTIVE at once and stays; its
user is noted in ``server.log`` of the log directory. What is otherwise, is read at each question
from the JSON file ``../fault.json`` beside the pipe directory:

    {"servers": {"4711": "FAULT"}, "ended": 0, "hangs": false, "ends": false}

where ``ended`` is how many of those that were asked for are no more.

Run with `python -I -S`: it imports the standard library alone and starts in some milliseconds.
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
DOOR = PIPE / "control"
PID = PIPE / "nvidia-cuda-mps-control.pid"
LOG = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", PIPE.parent / "log"))
FAULTS = PIPE.parent / "fault.json"
WANTED = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")


def faults():
    try:
        return json.loads(FAULTS.read_text())
    except FileNotFoundError:
        return {}


def ask():
    """Pass the commands on; 1 where there is no daemon."""
    try:
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(str(DOOR))
            door.sendall(sys.stdin.buffer.read())
            door.shutdown(socket.SHUT_WR)
            while told := door.recv(4096):
                sys.stdout.buffer.write(told)
    except OSError:
        sys.stdout.write("Cannot find MPS control daemon process\n")
        return 1
    return 0


def answer(command, started):
    """What the daemon says, or None when it is to end; the servers that it has started grow."""
    ill = faults()
    servers = ill.get("servers", dict(list(started.items())[ill.get("ended", 0) :]))
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
    """Answer until told to quit."""
    if PID.exists() or DOOR.exists():
        sys.stderr.write("An instance of this daemon is already running\n")
        return 1
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(DOOR))
        DOOR.chmod(0o666)  # clients are of any user
        PID.write_text(str(os.getpid()))
        shm = Path("/dev/shm").stat().st_ino
        with (LOG / "control.log").open("a") as lines:
            told = {name: os.environ.get(name) for name in WANTED}
            lines.write(json.dumps({**told, "arguments": sys.argv[1:], "shm": shm}) + "\n")
        door.listen()
        started = {}
        while True:
            asker, _ = door.accept()
            with asker:
                while faults().get("hangs"):
                    time.sleep(0.01)
                if faults().get("ends"):
                    return 3
                commands = asker.makefile().read().splitlines()
                told = [answer(command, started) for command in commands]
                if None in told:
                    PID.unlink()
                    DOOR.unlink()
                    return 0
                with suppress(OSError):  # who asked has been killed
                    asker.sendall("".join(told).encode())


def main():
    match sys.argv[1:]:
        case []:
            return ask()
        case ["-d", *_]:
            return 0 if os.fork() else serve()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return serve()


if __name__ == "__main__":
    sys.exit(main())
