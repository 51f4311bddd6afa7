"""Servers: sockets, secondary servers, TLS certificates, request bodies and health routes.

Extender, webhook and agent share them. The room knows neither Kubernetes nor scheduling.
"""
