"""Prompt priors, curricula, budgets and replay: pure state machines. Imports core only."""
