"""Queues per workflow and stage, batches on pods, retries, pre-warming.

The room does no I/O, and callers pass the clock: the simulator and a serving runtime run the same
code.
"""
