"""Server reflection: the descriptors of the gateway's services, for clients such as grpcurl.

They are bytes from `tools.descriptors`, so that the gateway needs no protobuf.
"""

from pathlib import Path
from typing import Any, Final

from scheduler.oip.grpc_messages import decode_message
from scheduler.protobuf import BYTES, INT64, TEXT, Field, FieldBudget, encode

SERVICES: Final = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)
DESCRIPTORS: Final = Path(__file__).with_name("descriptors.binpb")
"""A serialized ``google.protobuf.FileDescriptorSet``."""
_NOT_FOUND: Final = 5
_FIELDS_MAX: Final = 16
_NAME: Final = {1: Field("name", TEXT)}
_FILE_SET: Final = {1: Field("files", BYTES, is_repeated=True)}
_FILE: Final = {
    1: Field("name", TEXT),
    2: Field("package", TEXT),
    4: Field(
        "messages",
        {1: Field("name", TEXT), 3: Field("nested", _NAME, is_repeated=True)},
        is_repeated=True,
    ),
    6: Field(
        "services",
        {1: Field("name", TEXT), 2: Field("methods", _NAME, is_repeated=True)},
        is_repeated=True,
    ),
}
_REQUEST: Final = {
    3: Field("file_name", TEXT),
    4: Field("symbol", TEXT),
    7: Field("list_services", TEXT),
}
_ANSWER: Final = {
    2: Field("request", BYTES),
    4: Field("file", {1: Field("descriptors", BYTES, is_repeated=True)}),
    6: Field("services", {1: Field("service", _NAME, is_repeated=True)}),
    7: Field("error", {1: Field("code", INT64), 2: Field("message", TEXT)}),
}


class Reflection:
    """Files of all services, by name and by symbol."""

    def __init__(self) -> None:
        self._files: dict[str, memoryview] = {}
        self._services: list[str] = []
        for content in decode_message(_FILE_SET, DESCRIPTORS.read_bytes())["files"]:
            file = decode_message(_FILE, content)
            self._files |= dict.fromkeys((file["name"], *_symbols(file)), content)
            package = file["package"]
            self._services += [f"{package}.{item['name']}" for item in file["services"]]

    def answer(self, body: memoryview) -> bytes:
        """Answer a ``ServerReflectionRequest``.

        Raises:
            MessageError: the body is no such message.
        """
        request = decode_message(_REQUEST, body, FieldBudget(_FIELDS_MAX))
        answer: dict[str, Any] = {"request": body}
        name = request.get("file_name") or request.get("symbol") or ""
        if "list_services" in request:
            answer["services"] = {"service": [{"name": service} for service in self._services]}
        elif name in self._files:
            answer["file"] = {"descriptors": [self._files[name]]}
        else:  # no message has extensions
            answer["error"] = {"code": _NOT_FOUND, "message": "there is no such file or symbol"}
        return encode(_ANSWER, answer)


def _symbols(file: dict[str, Any]) -> list[str]:
    """Return the full names of a file's messages, services and methods."""
    symbols: list[str] = []
    for key, members in (("messages", "nested"), ("services", "methods")):
        for item in file.get(key, ()):
            name = f"{file['package']}.{item['name']}"
            symbols.append(name)
            symbols += [f"{name}.{member['name']}" for member in item.get(members, ())]
    return symbols
