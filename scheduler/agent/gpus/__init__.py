"""Devices of the node: inventory, health and modes; the only room that imports ``pynvml``."""
