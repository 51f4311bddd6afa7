"""Research over the product: studies whose commands write pages of ``docs/``.

Nothing in ``scheduler`` or ``workbench`` imports it. The wheel contains it, the image does not.
"""
