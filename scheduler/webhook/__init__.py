"""Mutating admission: a function pod gets its ceilings, its environment and its mounts.

Law of the room: it decides nothing. Which configurations a pod may have is asked of the planner
that the extender uses; what is granted is written by the Binding, much later. A pod's environment
refers to the Binding's annotations by name, so nothing here can contradict what is decided there.
No call has a side effect.
"""
