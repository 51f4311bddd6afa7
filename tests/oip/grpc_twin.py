"""A twin of the gRPC messages: the classes that protobuf generated for tritonclient, and numpy."""

import numpy as np
from tritonclient.grpc import service_pb2

from tests.oip import naive

Request, Answer = service_pb2.ModelInferRequest, service_pb2.ModelInferResponse
PARAMETERS = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(["INT8", "INT16", "INT32"], "int_contents"),
    **dict.fromkeys(["UINT8", "UINT16", "UINT32"], "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def set_parameters(target, parameters):
    for name, value in parameters.items():
        setattr(target[name], PARAMETERS[type(value)], value)


def parameters_of(source):
    return {
        name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in source.items()
    }


def message(kind, tensors, *, typed=False, parameters=None, outputs=(), **fields):
    """Return a request or an answer; ``tensors`` are (name, datatype, array)."""
    result = kind(**fields)
    set_parameters(result.parameters, parameters or {})
    entries, raw = sides(result)
    for name, datatype, array in tensors:
        entry = entries.add(name=name, datatype=datatype, shape=array.shape)
        if typed:
            getattr(entry.contents, CONTENTS[datatype]).extend(array.reshape(-1).tolist())
        else:
            raw.append(naive.to_bytes(datatype, array))
    for name in outputs:
        result.outputs.add(name=name)
    return result


def sides(result):
    """Return the tensors of a request or an answer, and their raw contents."""
    if isinstance(result, Request):
        return result.inputs, result.raw_input_contents
    return result.outputs, result.raw_output_contents


def tensors_of(result):
    """Return the tensors by name as (datatype, array)."""
    entries, raw = sides(result)
    assert not raw or len(raw) == len(entries)
    tensors = {}
    for index, entry in enumerate(entries):
        shape, datatype = tuple(entry.shape), entry.datatype
        if raw:
            array = naive.from_bytes(datatype, shape, raw[index])
        else:
            values = list(getattr(entry.contents, CONTENTS[datatype]))
            if datatype == "BYTES":
                array = naive.objects(values, shape)
            else:
                array = np.array(values, naive.DTYPES[datatype]).reshape(shape)
        tensors[entry.name] = (datatype, array)
    return tensors
