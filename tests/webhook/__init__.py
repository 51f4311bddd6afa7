"""Tests of the mutating admission webhook."""
