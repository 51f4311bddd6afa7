"""HTTP/1.1, as a server and as a client: the gateway's front, and its connections to model servers.

It knows bytes, headers and limits; which workflow a path names is passed in.
"""
