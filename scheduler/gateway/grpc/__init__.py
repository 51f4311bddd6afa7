"""gRPC, as a server and as a client.

The server's transport is h2, so that a message's memory is reserved before it comes (ADR 42). The
client's is grpcio, which only this room imports: 10 MB of memory. Other rooms import both inside
functions, once a FunctionServer or a setting needs gRPC.
"""
