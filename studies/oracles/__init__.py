"""Figures of published schedulers of training clusters, held against runs here."""
