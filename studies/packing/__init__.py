"""Placement of a list of pods on a cluster, one after the other, until it is full.

It measures how much of the GPUs can be granted before only fragments are free. Pods are not deleted
and take no time, so there is no clock. The live placement is compared with the rules of other
schedulers.
"""
