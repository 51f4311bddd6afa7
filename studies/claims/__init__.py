"""Claims of published schedulers beside what their reconstructions measure here."""
