"""An MPS daemon for measurements on this machine, with folders of its own."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from scheduler.model.message_text import reason_of

_CONTROL = "nvidia-cuda-mps-control"


class MpsDaemonError(Exception):
    """The daemon does not start; the message says why."""


@contextmanager
def mps_daemon() -> Iterator[dict[str, str]]:
    """Run a daemon while inside; yield the environment of its clients.

    Raises:
        MpsDaemonError: it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        environ = {**os.environ, **dict.fromkeys(names, folder)}
        try:
            subprocess.run([_CONTROL, "-d"], env=environ, check=True)  # noqa: S603 - of the driver
        except (OSError, subprocess.CalledProcessError) as error:
            text = f"the MPS daemon does not start: {_CONTROL}: {reason_of(error)}"
            raise MpsDaemonError(text) from None
        try:
            yield environ
        finally:
            subprocess.run(  # noqa: S603 - of the driver
                [_CONTROL], env=environ, input="quit\n", text=True, check=False
            )
