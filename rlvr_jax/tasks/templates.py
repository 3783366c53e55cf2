"""From a prompt to token ids: through the tokenizer's chat template, or as plain text."""

from collections.abc import Callable, Mapping
from typing import Any

from rlvr_jax.tasks.types import Prompt

__all__ = ["chat", "plain"]

Template = Callable[[Any, Prompt], list[int]]


def chat(system: str | None = None, suffix: str = "", options: Mapping[str, Any] | None = None) -> Template:
  """The conversation in the tokenizer's chat template, ending where the assistant begins.

  The ids are those of `apply_chat_template(add_generation_prompt=True)`: the template alone decides about BOS, and
  two in a row are an error.

  Args:
    system:  system message. None leaves it to the template, and some (Qwen2.5, SmolLM2) then insert one of their own;
             "" sends an empty one, which silences those.
    suffix:  text put after the last user message, such as "\\nThink step by step."
    options: variables for the template, such as `dict(enable_thinking=False)` for Qwen3.

  Raises ValueError when the tokenizer has no chat template, or the messages bring a system message besides `system`.
  """
  options = dict(options or {})

  def template(tokenizer, prompt: Prompt) -> list[int]:
    if not tokenizer.chat_template:
      raise ValueError("template 'chat' needs a tokenizer with a chat template, and this one has none; use 'plain'")
    text = tokenizer.apply_chat_template(
      _messages(prompt, system, suffix), tokenize=False, add_generation_prompt=True, **options
    )
    ids = _encode(tokenizer, text)
    if tokenizer.bos_token_id is not None and ids[:2] == [tokenizer.bos_token_id] * 2:
      raise ValueError(f"the chat template gave two BOS tokens in a row at the start of {text[:60]!r}")
    return ids

  return template


def plain(format: str = "{prompt}", system: str | None = None) -> Template:
  """The prompt put in place of `{prompt}` in `format`, other braces untouched; with one BOS if the tokenizer adds one.

  `system`, if given, stands before it, with an empty line between. No EOS is ever added.
  Raises ValueError when `format` has no `{prompt}`, or the prompt is a list of messages.
  """
  if "{prompt}" not in format:
    raise ValueError(f"template 'plain' needs '{{prompt}}' in format, got {format!r}")

  def template(tokenizer, prompt: Prompt) -> list[int]:
    if not isinstance(prompt, str):
      raise ValueError(f"template 'plain' needs the prompt as text, got {len(prompt)} messages; use 'chat'")
    text = format.replace("{prompt}", prompt)
    ids = _encode(tokenizer, text if system is None else f"{system}\n\n{text}")
    bos = tokenizer.bos_token_id
    return [bos] + ids if _adds_bos(tokenizer) and ids[:1] != [bos] else ids

  return template


def _encode(tokenizer, text: str) -> list[int]:
  return tokenizer(text, add_special_tokens=False)["input_ids"]


def _adds_bos(tokenizer) -> bool:
  bos = tokenizer.bos_token_id
  return bos is not None and tokenizer("", add_special_tokens=True)["input_ids"][:1] == [bos]


def _messages(prompt: Prompt, system: str | None, suffix: str) -> list[dict]:
  messages = [dict(role="user", content=prompt)] if isinstance(prompt, str) else [dict(m) for m in prompt]
  if messages[-1]["role"] != "user":
    raise ValueError(f"the last message of a prompt must be the user's, got role {messages[-1]['role']!r}")
  messages[-1]["content"] += suffix
  if system is None:
    return messages
  if any(m["role"] == "system" for m in messages):
    raise ValueError("the prompt has a system message of its own, so template 'chat' cannot take `system` as well")
  return [dict(role="system", content=system)] + messages
