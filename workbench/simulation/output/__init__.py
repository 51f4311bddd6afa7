"""What a run leaves behind: files, written while it goes on, in little memory.

Equal runs give equal bytes, whatever the day and the machine.
"""
