"""Files that a run writes while it goes on, in little memory.

Equal runs give equal bytes on any day and any machine.
"""
