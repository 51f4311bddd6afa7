"""Commands ``esg simulate`` and ``esg calibrate``: scenario, progress, tables, report."""
