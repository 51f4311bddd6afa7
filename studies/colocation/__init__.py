"""Training in the share that inference leaves."""
