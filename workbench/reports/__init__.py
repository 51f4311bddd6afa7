"""Pages that people look at: one HTML file each, which can be mailed and opened anywhere.

Law of the room: it knows the model and numbers alone. A page holds its own style and its figures as
inline SVG, takes nothing from the network and runs no script; the same numbers make the same bytes.
Jinja and matplotlib are imported when a page is made, for they come with the extra ``report``.
"""
