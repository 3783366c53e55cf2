"""Teachers with parameters of their own, loaded from a model source."""

from collections.abc import Mapping
from typing import Any

from rlvr_jax.models import Decoder
from rlvr_jax.models.load import LoadedModel, load_model, tokenizer_fingerprint
from rlvr_jax.sharding import place


def _sources(config: Mapping[str, Any]) -> dict[str, str]:
  """View -> source. Raises ValueError for an expert that only a laboratory stage can save."""
  views = config.get("views", {})
  for name, spec in views.items():
    if spec.get("expert"):
      raise ValueError(
        f"config.views.{name}.expert = {spec['expert']!r}: stages of a text task do not keep parameters; export them "
        "and name the directory as source"
      )
  return {name: spec["source"] for name, spec in views.items() if spec.get("source")}


def _load(name: str, source: str, loaded: LoadedModel) -> LoadedModel:
  expert = load_model(source)
  if tokenizer_fingerprint(expert.tokenizer) != tokenizer_fingerprint(loaded.tokenizer):
    raise ValueError(
      f"config.views.{name}: {source!r} has another tokenizer than the policy, so its ids mean other texts"
    )
  return expert


def expert_models(config: Mapping[str, Any], loaded: LoadedModel) -> dict[str, Decoder]:
  """The decoder of every view with a source."""
  return {name: Decoder(_load(name, source, loaded).config) for name, source in _sources(config).items()}


def load_experts(config: Mapping[str, Any], loaded: LoadedModel, mesh: Any) -> dict[str, Any]:
  """The parameters of every view with a source, on the mesh."""
  out = {}
  for name, source in _sources(config).items():
    expert = _load(name, source, loaded)
    out[name] = place(mesh, expert.params, Decoder(expert.config).axes())
  return out
