"""Offline tools: simulator, reports, demo and profile importers.

The runtime image leaves this package out.
"""
