"""Command line of ``esg``: ``commands`` declares it, the other modules carry it out."""
