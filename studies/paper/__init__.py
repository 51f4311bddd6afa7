"""Evaluation of the ESG paper (arXiv 2404.16812) on generated and on measured profiles."""
