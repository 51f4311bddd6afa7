"""Command ``esg plan``: plans of a workflow as tables, JSON and a page."""
