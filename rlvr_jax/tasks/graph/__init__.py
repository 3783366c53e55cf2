"""Builders of graph tasks. Each gives a `GraphTask`: prompts, demonstrations and verdicts as array code."""

__all__: list[str] = []
