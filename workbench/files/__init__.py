"""File formats of several rooms: CSV tables, Chrome traces.

Law of the room: it knows rows, cells and events, and nothing of what they describe.
"""
