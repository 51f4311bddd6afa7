"""Models of arguments for soundness, without code of the package."""
