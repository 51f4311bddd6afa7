"""Reservations on every GPU: assume, confirm, release; and a snapshot of them all.

Law of the room: no I/O. Callers pass in the time and the state of the cluster. The room is not
thread-safe, by design: the service runs on one event loop, where nothing comes between a check and
the assumption that follows it (docs/adr/0002-one-event-loop.md).
"""
