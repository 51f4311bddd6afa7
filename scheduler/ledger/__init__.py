"""What is promised to whom on each GPU: assume, confirm, release; and the whole as a snapshot.

Law of the room: no I/O. Time is passed in; what the cluster says is handed in. The room is not
thread-safe, by design: the service runs on one event loop, where nothing comes between a check and
the assumption that follows it (docs/adr/0002-one-event-loop.md).
"""
