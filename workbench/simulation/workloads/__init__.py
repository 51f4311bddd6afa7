"""Workloads: arrival times of requests for each workflow.

Law of the room: a workload is a set of parameters and yields arrivals lazily in chunks, so memory
does not grow with their number. All randomness comes from the seed that is passed in: the same seed
gives the same bytes in every iteration. The files that a user names are the only I/O.
"""
