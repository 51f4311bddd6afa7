"""The node agent: the inventory that NVML tells, and the MPS daemons of a node's GPUs.

Law of the room: the only one that may import ``pynvml``.
"""
