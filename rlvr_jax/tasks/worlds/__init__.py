"""Builders of worlds. Each gives a `World`: a task of several turns as array code."""

from rlvr_jax.tasks.worlds.guess_number import guess_number
from rlvr_jax.tasks.worlds.key_door import key_door
from rlvr_jax.tasks.worlds.key_value import key_value
from rlvr_jax.tasks.worlds.requests import requests

__all__ = ["guess_number", "key_door", "key_value", "requests"]
