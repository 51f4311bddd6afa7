"""The trace-driven simulator: the live policy and placement code under a virtual clock.

Law of the room: no cluster, no server, no agent; time is a number that events advance.
"""
