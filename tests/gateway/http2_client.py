"""An HTTP/2 client that sends what a test says, whole calls or not."""

import asyncio
import contextlib
import struct

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

INFER = "/inference.GRPCInferenceService/ModelInfer"
FRAME_BYTES = 16_384


class Http2Client:
    """One connection.

    Attributes:
        http2: the protocol's state; `flush` sends what it has.
        headers: those that came, by call; trailers behind the others.
        bodies: data that came, by call.
        resets: codes of calls that the server has reset.
        ended: calls whose answer is complete.
        gone: the code and the last call of the server's GOAWAY, or None.
        is_closed: set when the server has closed the connection.
    """

    def __init__(self, reader, writer):
        self._reader, self.writer = reader, writer
        self.http2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.headers, self.bodies, self.resets, self.ended = {}, {}, {}, set()
        self.gone, self.is_closed = None, asyncio.Event()
        self.is_ready = asyncio.Event()
        self.takes_answers = True

    def flush(self):
        self.writer.write(self.http2.data_to_send())

    def call(self, *, path=INFER, announced=None, body=b"", ends=False, **metadata):
        """Begin a call; send the length of its message and a part of it, or nothing at all."""
        number = self.http2.get_next_available_stream_id()
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":authority": "gateway",
            ":path": path,
            "te": "trailers",
            "content-type": "application/grpc",
            **metadata,
        }
        self.http2.send_headers(number, [*headers.items()], end_stream=ends and announced is None)
        if announced is not None:
            self.send(number, struct.pack(">BI", 0, announced) + body, ends=ends)
        self.flush()
        return number

    def send(self, number, data, *, ends=False):
        """Send as much as the windows have room for."""
        view = memoryview(data)
        while True:
            self.http2.send_data(
                number, bytes(view[:FRAME_BYTES]), ends and len(view) <= FRAME_BYTES
            )
            view = view[FRAME_BYTES:]
            if not view:
                break
        self.flush()

    def status(self, number):
        """Return the status of a call and its reason; None while there is none."""
        headers = self.headers.get(number, {})
        return headers.get("grpc-status") and (
            int(headers["grpc-status"]),
            headers.get("grpc-message", ""),
        )

    async def follow(self):
        """Read until the server closes the connection."""
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(2**16):
                for event in self.http2.receive_data(data):
                    self._handle(event)
                self.flush()
        self.is_closed.set()

    def _handle(self, event):
        match event:
            case events.ResponseReceived() | events.TrailersReceived():
                self.headers.setdefault(event.stream_id, {}).update(event.headers)
            case events.DataReceived():
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                if self.takes_answers:
                    self.http2.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
            case events.StreamReset():
                self.resets[event.stream_id] = event.error_code
            case events.StreamEnded():
                self.ended.add(event.stream_id)
            case events.ConnectionTerminated():
                self.gone = event.error_code, event.last_stream_id
            case events.RemoteSettingsChanged():
                self.is_ready.set()


@contextlib.asynccontextmanager
async def http2_client(address, *, window_bytes=65_535):
    """Connect, and wait for the server's settings."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    client = Http2Client(reader, writer)
    client.http2.initiate_connection()
    client.http2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window_bytes})
    client.flush()
    task = asyncio.create_task(client.follow())
    try:
        await client.is_ready.wait()
        yield client
    finally:
        task.cancel()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
