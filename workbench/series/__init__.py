"""Series of runs in several processes: what every simulator's sweeps share.

Law of the room: a run depends on its job alone, so that it gives the same result in any process, on
any machine and in any order. Processes have no state of the parent but their arguments.
"""
