"""Limits of the work that one request may cause.

Bytes of tensors pass through untouched, however many there are. What is read one by one takes the
interpreter from all other requests: JSON values, elements of BYTES tensors, fields of protobuf.
"""

from typing import Final

VALUES_MAX: Final = 262_144
"""Values of a request's JSON: numbers, texts, lists and objects."""
TENSORS_MAX: Final = 256
"""Inputs of a request, and its requested outputs."""
PARAMETERS_MAX: Final = 256
"""Parameters of a request, or of a tensor."""
TEXTS_MAX: Final = 65_536
"""Elements of all BYTES tensors of a request."""
FIELDS_MAX: Final = 32_768
"""Fields of a request over gRPC, and values that are not packed."""
TYPED_BYTES_MAX: Final = 262_144
"""Typed contents of integers in a request over gRPC, bytes."""
