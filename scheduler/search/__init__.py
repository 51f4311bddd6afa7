"""Choice of configurations: Pareto frontiers, A*, latency budgets and the planner.

This package imports the model and numerical libraries only. Kernels work on plain arrays under
Numba. A thin front turns documents into arrays and results into plans. There is no I/O, no clock
and no cluster.

"The ESG algorithm" is a reconstruction from the abstract and summaries of arXiv 2404.16812,
completed by our own reasoning and tested against brute force.
"""
