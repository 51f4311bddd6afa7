"""Reports: self-contained HTML pages and figures.

Law of the room: it knows the model and numbers alone. A page contains its style and its figures as
inline SVG, loads nothing from the network and runs no script; equal numbers give equal bytes. Jinja
and matplotlib are imported when a page is rendered, because they come with the extra ``report``.
"""
