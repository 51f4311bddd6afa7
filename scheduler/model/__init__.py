"""Frozen types with validation: documents, pods, nodes, GPUs, configurations and plans.

This package only transforms values. It does not read files, open sockets or import the Kubernetes
client or another package, so every other package may import it.
"""
