"""Policies of training clusters: one file and one registry entry each."""
