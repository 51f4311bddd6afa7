"""Floods of every port of real processes: what they cost in memory, and kube-scheduler in time."""
