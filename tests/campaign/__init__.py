"""Runs of the extender with drawn faults: real services, a simulated API server, virtual time.

`python -m tests.campaign` runs many of them; each is decided by its seed alone.
"""
