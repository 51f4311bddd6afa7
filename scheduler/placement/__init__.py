"""Which node and which GPU: what fits, why the rest does not, and how good each fit is.

Law of the room: it reads a `Fleet` and answers; it changes nothing, does no I/O, and imports the
model and the search alone, so that the live service and the simulator place with the same code.
"""
