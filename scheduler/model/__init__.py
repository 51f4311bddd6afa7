"""Frozen facts: documents, pods, nodes, GPUs, configurations and plans, with their validation.

Law of the room: values in, values out. Nothing here reads a file, opens a socket, knows Kubernetes'
client or imports another room, so every other room may import this one.
"""
