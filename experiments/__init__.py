"""Mains: flags and one call."""
