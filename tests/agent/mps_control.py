"""A nvidia-cuda-mps-control without a GPU.

As the real one: ``-f`` serves in the foreground, ``-d`` in the background, and without arguments
commands come from standard input and go to the daemon of $CUDA_MPS_PIPE_DIRECTORY. It will not
start where another has left its files. What its servers are, and how ill, is read at each question
from the JSON file ``../fault.json`` beside the pipe directory:

    {"servers": {"4711": "FAULT"}, "hangs": false, "ends": false}

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


def answer(command):
    """What the daemon says, or None when it is to end."""
    servers = faults().get("servers", {})
    match command.split():
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
        PID.write_text(str(os.getpid()))
        log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log"
        shm = Path("/dev/shm").stat().st_ino
        with log.open("a") as lines:
            told = {name: os.environ.get(name) for name in WANTED}
            lines.write(json.dumps({**told, "arguments": sys.argv[1:], "shm": shm}) + "\n")
        door.listen()
        while True:
            asker, _ = door.accept()
            with asker:
                while faults().get("hangs"):
                    time.sleep(0.01)
                if faults().get("ends"):
                    return 3
                commands = asker.makefile().read().splitlines()
                told = [answer(command) for command in commands]
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
