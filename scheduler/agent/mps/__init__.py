"""NVIDIA MPS daemons of the node, one for each GPU, and their clients."""
