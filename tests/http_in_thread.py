"""Servers of the standard library in a thread, for commands that block."""

import contextlib
import threading
from http.server import ThreadingHTTPServer


@contextlib.contextmanager
def served_in_thread(handler):
    """Serve a handler on the loopback; yields the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
