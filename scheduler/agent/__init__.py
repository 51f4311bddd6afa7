"""The node agent: the inventory that NVML tells, and the MPS daemons of a node's GPUs.

Law of the room: the only one that may import ``pynvml``. It writes to its own node and nowhere
else, through `scheduler.cluster`, and decides nothing about pods. NVML is called in one thread
(`reader`), for any of its calls may hang with a sick GPU; all else runs on an event loop. The agent
(`service`) and the keeper of the daemons (`keeping`) are two processes, so that a new version of
the agent costs no client its CUDA context. They meet in a small file for each GPU (`daemon_state`).
"""
