"""Builders of worlds. Each gives a `World`: a task of several turns as array code."""

__all__: list[str] = []
