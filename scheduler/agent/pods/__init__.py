"""Pods and grants of the node, and which processes use its GPUs."""
