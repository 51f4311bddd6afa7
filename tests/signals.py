"""Signals for the programs that tests start."""

import signal


def hear_ctrl_c() -> None:
    """Have the process hear SIGINT; give it to Popen as ``preexec_fn``.

    A shell's background job ignores SIGINT, and so does all that it starts; a test that presses
    Ctrl-C would then wait for ever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
