"""Simulator of training clusters: policies that place jobs, in the environments of their papers.

Law of the room: a policy sees jobs by their capabilities alone and returns placements; an
environment knows traces, speeds and the clock, and no policy. A run depends on its setup alone.
"""
