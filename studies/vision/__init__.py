"""Profiles of public vision architectures under MPS, measured on a real GPU."""
