"""gRPC, as a server and as a client: the only room that imports grpcio, 10 MB of memory.

Other rooms import it inside functions, once a FunctionServer or a setting needs gRPC.
"""
