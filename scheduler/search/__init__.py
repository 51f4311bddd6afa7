"""Which configurations: Pareto frontiers, A* with both blades, latency budgets, the planner.

Law of the room: it knows the model and numbers. Kernels are plain arrays under Numba; the front
that turns documents into arrays and answers into plans is thin. No I/O, no clock, no cluster.

The algorithm is "the ESG algorithm": reconstructed from the abstract and summaries of arXiv
2404.16812, completed by our own reasoning and held against brute force.
"""
