"""Costs of plans, objectives and fixed shares, in the simulator and by Monte Carlo."""
