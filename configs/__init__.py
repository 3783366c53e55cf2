"""Experiment configs: one file is one experiment; they import ml_collections and their own shared functions only."""
