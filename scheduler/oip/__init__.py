"""Messages of the gateway's data path: Open Inference Protocol v2 over HTTP and gRPC.

This package imports the model at most and does no I/O. Tensors are views of the bodies they came
in: nothing decodes them unless a client and a model server use different forms. Invalid messages
raise `MessageError` and nothing else; the work they cause is linear in the size of the body.
"""
