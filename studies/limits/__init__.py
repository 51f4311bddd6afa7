"""Limits of the cost of served requests, and the page that compares them with what is paid."""
