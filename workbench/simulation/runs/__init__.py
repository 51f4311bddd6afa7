"""Many runs: which there are, how each is done, and in how many processes.

Law of the room: a run depends on its job alone, so that it comes out the same in any process and in
any order. Processes are spawned: nothing of the parent is there but what is handed over.
"""
