"""Servers: sockets, secondary servers, TLS and request bodies.

Extender, webhook and agent share them.
"""
