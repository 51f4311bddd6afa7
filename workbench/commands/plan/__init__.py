"""Command ``esg plan``: answers, tables and curves of a workflow's plans."""
