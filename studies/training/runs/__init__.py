"""Runs of training clusters: their setups, their execution and their files."""
