"""Write what the gateway says of its gRPC services to clients that ask by reflection.

    python -m tools.descriptors

The descriptors are those of well-kept packages: gRPC's health checking and reflection, and
tritonclient for the Open Inference Protocol, of which the methods that the gateway serves stay,
with their messages. The gateway needs neither these packages nor protobuf.
"""

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import service_pb2

from scheduler.gateway.grpc.reflection import DESCRIPTORS

METHODS = (
    "ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer",
)  # fmt: skip


def descriptor_set() -> FileDescriptorSet:
    """Return the files of all services."""
    inference, health, reflection = (
        FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for module in (service_pb2, health_pb2, reflection_pb2)
    )
    current = text_format.MessageToString(reflection).replace("v1alpha", "v1")
    return FileDescriptorSet(
        file=[
            _served(inference),
            health,
            text_format.Parse(current, FileDescriptorProto()),
            reflection,
        ]
    )


def _served(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return the protocol's file without what the gateway does not serve."""
    [service] = file.service
    methods = [method for method in service.method if method.name in METHODS]
    messages = {f".{file.package}.{message.name}": message for message in file.message_type}
    names: set[str] = set()
    for method in methods:
        _add_used(method.input_type, messages, names)
        _add_used(method.output_type, messages, names)
    served = FileDescriptorProto(name=file.name, package=file.package, syntax=file.syntax)
    served.message_type.extend(message for name, message in messages.items() if name in names)
    served.service.add(name=service.name).method.extend(methods)
    return served


def _add_used(name: str, messages: dict[str, DescriptorProto], names: set[str]) -> None:
    """Add a message of the file, and those in its fields."""
    if name not in messages or name in names:
        return
    names.add(name)
    message = messages[name]
    for part in (message, *message.nested_type):
        for field in part.field:
            _add_used(field.type_name, messages, names)


if __name__ == "__main__":
    DESCRIPTORS.write_bytes(descriptor_set().SerializeToString(deterministic=True))
