"""Series of runs: jobs, their execution in processes, and their results.

Law of the room: a run depends on its job alone, so that it gives the same result in any process and
in any order. Processes are spawned: they have no state of the parent but their arguments.
"""
