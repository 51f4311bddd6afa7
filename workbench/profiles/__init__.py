"""Function profiles: generated samples and imports of measurements."""
