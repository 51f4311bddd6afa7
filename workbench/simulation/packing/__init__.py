"""Placement of a list of pods on a cluster, one after the other, until it is full.

The question: how much of the GPUs can be given away before fragments are all that is left. Pods are
not deleted and take no time, so there is no clock here. The live placement code decides beside the
rules of others.
"""
