"""Queues per workflow and function, batching, what to try again, pre-warming: when, not where.

Law of the room: decisions over a clock that is passed in, no I/O, so that the simulator and a
serving runtime run the same code.
"""
