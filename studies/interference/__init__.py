"""Slowdown of models side by side on one GPU: a model fitted on measured pairs, and its use."""
