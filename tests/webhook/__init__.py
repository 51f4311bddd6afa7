"""What admission does to pods, and how it is served."""
