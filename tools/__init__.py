"""Checks of this repository that no installed linter has."""
