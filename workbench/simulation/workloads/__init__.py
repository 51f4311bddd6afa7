"""Workloads: which workflow is asked for when.

Law of the room: a workload is parameters, and gives arrivals in chunks, lazily, so that memory does
not grow with their number. All chance comes from the seed that is passed in: the same seed gives
the same bytes, in each iteration. The files that a user names are the only I/O.
"""
