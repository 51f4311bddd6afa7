"""Write what the gateway tells about its gRPC services to clients that ask by reflection.

    python -m tools.descriptors

The descriptors are those of well-kept packages: gRPC's health checking and reflection, and
tritonclient for the Open Inference Protocol, of which the methods that the gateway serves and their
messages stay. The gateway needs none of these packages, nor protobuf.
"""

from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import service_pb2

from scheduler.gateway.grpc.reflection import DESCRIPTORS

METHODS = (
    "ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer",
)  # fmt: skip


def main() -> None:
    """Write the file."""
    DESCRIPTORS.write_bytes(descriptor_set().SerializeToString(deterministic=True))


def descriptor_set() -> FileDescriptorSet:
    """Return the files of all services of the gateway."""
    old_reflection = _file(reflection_pb2)
    reflection = FileDescriptorProto.FromString(
        old_reflection.SerializeToString().replace(b"v1alpha", b"v1")
    )
    return FileDescriptorSet(
        file=[_open_inference(), _file(health_pb2), reflection, old_reflection]
    )
