"""Orders of stages that are not series-parallel: node reduction (ADR 21) and time prices."""
