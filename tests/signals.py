"""Signals for the programs that tests start."""

import signal


def hear_ctrl_c() -> None:
    """Restore Python's SIGINT handler in a new process; pass it to Popen as ``preexec_fn``.

    A shell's background job ignores SIGINT, and so do its children; a test that sends Ctrl-C would
    then wait forever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
