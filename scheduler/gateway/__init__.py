"""The gateway: requests of clients in, batches to model servers, answers out.

This package does the I/O. Decisions are made in `scheduler.dispatch`, and messages are read and
written in `scheduler.oip`.
"""
