"""Servers: sockets, limits of connections, TLS certificates, request bodies and health servers.

Extender, webhook and agent share them. The room knows neither Kubernetes nor scheduling.
"""
