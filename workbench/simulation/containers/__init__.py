"""Simulated nodes and the containers on them: room, grants, data, failures."""
