"""Mutating admission webhook: ceilings, environment and mounts of function pods.

The room decides nothing. The extender's planner says which configurations a pod may have, and the
Binding writes the grant, much later. A pod's environment refers to the Binding's annotations by
name, so nothing here can contradict that grant. No call has a side effect.
"""
