"""HTTP/2 of one connection: h2, with bounds of its memory and time."""

from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame

from scheduler.gateway.grpc.frame_guard import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from scheduler.gateway.grpc.status import Headers

_CONNECTION_WINDOW_BYTES: Final = 2**30
_WINDOW_BYTES_MAX: Final = 2**31 - 1
_FIRST_WINDOW_BYTES: Final = 65_535
_SLACK_BYTES: Final = 2**16  # of a call's window, for the prefix of its message, and padding
_CONFIG: Final = H2Configuration(
    client_side=False,
    header_encoding=None,
    normalize_outbound_headers=False,
    validate_outbound_headers=False,
)

# h2 formats each frame for a log that is off, which takes a third of the time of a long message.
Frame.__repr__ = object.__repr__  # type: ignore[method-assign]


class Http2(H2Connection):
    """The server's half of a connection.

    Args:
        streams: largest number of calls at a time.
        message_bytes: size of the largest message. A client may send one without waiting for a
            window: its memory is reserved, or the call is refused, when its length has come.
    """

    MAX_CLOSED_STREAMS = 256  # the default of 65,536 takes megabytes of each connection

    def __init__(self, *, streams: int, message_bytes: int) -> None:
        super().__init__(_CONFIG)
        settings = {
            SettingCodes.MAX_CONCURRENT_STREAMS: streams,
            SettingCodes.INITIAL_WINDOW_SIZE: min(message_bytes + _SLACK_BYTES, _WINDOW_BYTES_MAX),
            SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES_MAX,
            SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_BYTES_MAX,
        }
        self.local_settings = Settings(client=False, initial_values=settings)
        self.decoder.max_header_list_size = HEADER_BYTES_MAX
        self.initiate_connection()
        self.increment_flow_control_window(_CONNECTION_WINDOW_BYTES - _FIRST_WINDOW_BYTES)

    def try_headers(self, number: int, headers: Headers, *, ends: bool = False) -> bool:
        """Send headers; return false if the client has reset the call, or is leaving."""
        try:
            self.send_headers(number, headers, end_stream=ends)
        except ProtocolError:
            return False
        return True

    def try_reset(self, number: int, code: ErrorCodes) -> None:
        """Reset a call, unless it has ended."""
        try:
            self.reset_stream(number, code)
        except ProtocolError:
            return

    def room(self, number: int) -> int:
        """Return how many bytes the next frame of an answer may have."""
        return min(self.local_flow_control_window(number), self.max_outbound_frame_size)

    def leaving(self) -> bytes:
        """Return the frame that says that further calls are not answered.

        h2 sends nothing after such a frame of its own, not even the answers to earlier calls.
        """
        frame = GoAwayFrame(0, last_stream_id=self.highest_inbound_stream_id)
        return bytes(frame.serialize())
