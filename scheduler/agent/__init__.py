"""The node agent: GPU inventory from NVML, and the MPS daemons of a node's GPUs.

Only this room imports ``pynvml``. It writes to its own node only, through `scheduler.cluster`, and
decides nothing about pods. One thread (`reader`) calls NVML, because any of its calls may hang with
a broken GPU; all else runs on an event loop. The agent (`service`) and the supervisor of the
daemons (`mps_supervisor`) are two processes, so that an update of the agent costs no client its
CUDA context. They share a small file per GPU (`daemon_state`).
"""
