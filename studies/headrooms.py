"""The headrooms that are tried for policies without a reserve of their own."""

HEADROOM_RATIOS = (-0.9, -0.6, -0.3, 0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4, 3.2)
"""Of the rate, from the least; for Orion, of the time."""
