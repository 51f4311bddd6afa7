"""Pareto frontiers of time and cost as arrays: join, reduce, explore."""
