"""Figures of published schedulers of training clusters, compared with runs here."""
