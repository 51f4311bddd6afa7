"""Commands of ``esg`` that run on a desk."""
