"""Mutated requests to every port of real processes: none may fail, grow or stop answering.

`python -m tests.fuzz` sends any number of them, drawn from a seed.
"""
