"""Placement: the candidate that fits, the best node and GPU for it, and reasons where none fits.

Law of the room: no I/O, and imports of the model and the search only, so that the live service and
the simulator place with the same code. Placing changes nothing; only the ledger calls the methods
of `Fleet` that write.
"""
