"""Queues per workflow and function, batches, retries, pre-warming: when to run, not where.

The room does no I/O, and callers pass the clock: the simulator and a serving runtime run the same
code.
"""
