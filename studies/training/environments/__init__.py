"""Environments: the workloads, speeds, clocks and quirks of published simulators.

An environment derives from `JobEnvironment` and has an entry in the registry. It knows no policy.
"""
