"""Servers of the standard library in a thread, for commands that block."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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


def json_served_in_thread(answer):
    """Serve JSON on the loopback; ``answer`` returns status and object for a path and its query."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, document = answer(self.path)
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    return served_in_thread(Handler)
