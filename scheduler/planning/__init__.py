"""Workflows and profiles as the cluster reports them, and the planner over them.

The extender and the gateway plan over the same documents, each in its own process. The package
does no I/O; workflows are prepared for planning in worker threads.
"""
