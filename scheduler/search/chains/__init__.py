"""Policy ``esg``: the SLO is split among chains of stages, and A* plans one chain."""
