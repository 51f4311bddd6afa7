"""Command ``esg jobs``: training clusters under published policies."""
