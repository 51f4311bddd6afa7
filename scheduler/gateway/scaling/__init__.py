"""Pods that the gateway creates and deletes.

How many and with which shares, `scheduler.dispatch.scaling` decides.
"""
