"""Delivery of grants by resource claims (DRA) and CDI."""
