"""The cluster room against a small API server of our own, and against the real one (marked e2e)."""
