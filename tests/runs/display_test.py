"""The live panel and the plain lines say the same; the summary compares before with after."""

import io

import numpy as np
import pytest
from rich.console import Console

from rlvr_jax.evals import compare, summarise_eval
from rlvr_jax.runs.display import Display, colour_tokens, duration, spark

SCALARS = {
  "loss": 0.01234, "reward/mean": 0.456, "accuracy": 0.5, "length/mean": 33.3, "entropy": 1.25,
  "time/generated_tokens_per_sec": 1234.5, "extra": 1.0,
}  # fmt: skip
PHASES = {"sample": 1.5, "verify": 0.25, "train": 0.75}
SHOWN = (
  "loss", "0.0123", "reward", "0.456", "accuracy", "50.0%", "length", "33.3", "entropy", "1.250", "tokens/s", "1,234",
)  # fmt: skip


class Clock:
  now = 100.0

  def __call__(self):
    return self.now


def plain_display(**kwargs):
  out, clock = io.StringIO(), Clock()
  return Display(100, "run", console=Console(file=out, width=120), clock=clock, **kwargs), out, clock


def evaluation(right, p=200):
  scores = (np.arange(p)[:, None] < right) * np.ones((1, 2))
  return summarise_eval(np.arange(p), scores, np.full((p, 2), 12), np.zeros((p, 2), bool), {})


def test_a_pipe_gets_one_plain_line_per_step():
  display, out, clock = plain_display()
  assert display.plain
  with display:
    display.update(9, SCALARS, PHASES)
    clock.now += 2.5
    display.update(10, SCALARS, PHASES)
    display.update(11, {}, {})
  first, second, third = out.getvalue().splitlines()
  assert "\x1b" not in out.getvalue()
  for part in SHOWN:
    assert part in second
  assert second.startswith("step 10/100 | ") and second.endswith("| left 3m45s | sample 1.50s verify 0.25s train 0.75s")
  assert "left -" in first
  assert "reward - | accuracy - | length -" in third


def test_time_left_follows_the_pace_and_a_resume():
  display, _, clock = plain_display()
  assert display.time_left() is None
  for step in range(80, 91):  # resumed at 80
    display.update(step, {}, {})
    clock.now += 3.0
  assert display.time_left() == pytest.approx(30.0)


def live_display():
  console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30, record=True, _environ={})
  return Display(100, "runs/quickstart", console=console), console


def test_a_terminal_gets_the_panel():
  display, console = live_display()
  assert not display.plain
  with display:
    for step in range(1, 31):
      display.update(step, SCALARS | {"reward/mean": step / 60}, PHASES)
    display.message("the worker pool was restarted", "warning")
    inner = list(display.progress(range(3), "evaluating, step 30"))
    console.print(display._render())
  text = console.export_text(clear=False)
  for part in ("runs/quickstart", "reward", "0.500", "▁▁", "█", "time left", "sample", "1.50s", "60%", "30/100"):
    assert part in text
  assert "warning: the worker pool was restarted" in text and inner == [0, 1, 2]


def test_plain_can_be_asked_for_on_a_terminal():
  _, console = live_display()
  display = Display(100, plain=True, console=console)
  with display:
    display.update(1, SCALARS, PHASES)
  assert console.export_text().startswith("step 1/100 | loss")


def test_progress_in_plain_lines():
  display, out, clock = plain_display()

  def slow():
    for i in range(8):
      clock.now += 4.0
      yield i

  assert list(display.progress(slow(), "loading", total=8)) == list(range(8))
  assert out.getvalue().splitlines() == ["loading: 3/8 (12s)", "loading: 6/8 (24s)", "loading: 8/8 (32s)"]


def test_progress_ends_when_the_work_fails():
  display, _, _ = plain_display()
  with pytest.raises(RuntimeError):
    for _ in display.progress([1, 2], "evaluating"):
      raise RuntimeError
  assert len(display._bar.tasks) == 1


def test_summary():
  display, out, _ = plain_display()
  before, after = evaluation(40), evaluation(100)
  display.summary(before, after, compare(before, after), dict(generated_tokens=123456))
  text = out.getvalue()
  for part in (
    "200 prompts x 2 samples",
    "20.0% [",
    "50.0% [",
    "+30.0 points [",
    "p = 0.0002",
    "pass@2",
    "123,456",
    "12.0 tokens",
  ):
    assert part in text
  assert "…" not in text
  display.summary(None, after)
  assert "before" in out.getvalue()


def test_the_summary_is_the_last_thing_on_a_terminal():
  display, console = live_display()
  with display:
    display.update(100, SCALARS, PHASES)
    display.summary(None, evaluation(10))
  text = console.export_text()
  assert text.index("100/100") < text.index("held-out: 200 prompts")
  assert "100/100" not in text[text.index("held-out") :]


def test_an_unknown_level_is_an_error():
  display, _, _ = plain_display()
  with pytest.raises(ValueError, match="level must be one of"):
    display.message("x", "loud")


def test_markup_in_messages_is_text():
  display, out, _ = plain_display()
  display.message("[red]x[/red] [0, 1] \ud800")
  assert out.getvalue().startswith("info: [red]x[/red] [0, 1]")


def test_colour_tokens():
  text = colour_tokens(["a", "b", "c\n", "d", "e"], [1.0, -1.0, 0.5, 0.0, float("nan")])
  assert text.plain == "abc↵\nde"
  red, green, blue = zip(*(s.style.bgcolor.triplet for s in text.spans if s.style and s.style.bgcolor))
  assert green[0] > red[0] and red[1] > green[1] and red[0] < red[2] < 255
  assert len(red) == 3
  with pytest.raises(ValueError, match="1 tokens but 2 values"):
    colour_tokens(["a"], [1.0, 2.0])


@pytest.mark.parametrize("secs, written", [(0.4, "0s"), (59.6, "1m00s"), (192, "3m12s"), (3725, "1h02m")])
def test_duration(secs, written):
  assert duration(secs) == written


def test_spark():
  assert spark([0, 0.5, float("nan"), 1]) == "▁▅ █" and spark([]) == "" and spark([2, 2]) == "▁▁"
