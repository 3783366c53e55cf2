"""Runs verifiers in worker processes under a wall clock that the parent keeps."""

import dataclasses
import pickle
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

from rlvr_jax.rewards.process import WorkerProcess
from rlvr_jax.rewards.specs import check_specs, label_of, weights_of
from rlvr_jax.rewards.verdict import Sample, Verdict, verdict

MAX_CHUNK_ROWS = 16


@dataclasses.dataclass
class _Task:
  row: int
  payload: bytes
  component: int = 0  # the next one to be answered
  crashes: int = 0  # of that component


class VerifierPool:
  """`verify(samples)`: one verdict per sample and named component, in order, whatever the verifiers do.

  Each component of each row has `timeout_secs` of wall clock, counted from the answer before it on that worker; past it
  the worker is killed and replaced and the verdict is 0 with status `timeout`. A worker that dies is replaced and the
  component tried `max_retries` times more, then it is an `error`. Start-up is outside the clock.
  A user's verifier must be importable by name; the main module is never run again, so scripts need no guard.
  """

  def __init__(
    self,
    specs: Sequence[Mapping[str, Any] | str],
    *,
    num_workers: int = 2,
    timeout_secs: float = 10.0,
    max_retries: int = 1,
    memory_mb: int | None = 4096,
    start_secs: float = 120.0,
  ):
    """Starts the workers and waits until all are ready.

    Args:
      specs:        dicts of name, weight, label and the verifier's options (see `check_specs`).
      memory_mb:    data limit of a worker in MiB; None for no limit.
      start_secs:   time a worker may take to import and build the verifiers.

    Raises ValueError for a bad spec or option, RuntimeError when a worker does not start.
    """
    for name, value, least in (("num_workers", num_workers, 1), ("max_retries", max_retries, 0)):
      if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if not timeout_secs > 0:
      raise ValueError(f"timeout_secs must be positive, got {timeout_secs}")
    self.specs = check_specs(specs)
    self.labels = [label_of(s) for s in self.specs]
    self.weights = weights_of(self.specs)
    self._timeout_secs, self._max_retries, self._start_secs = timeout_secs, max_retries, start_secs
    self._setup = dict(specs=self.specs, memory_mb=memory_mb, orphan_secs=2 * timeout_secs + 5)
    self._counters = dict(restarts=0, timeouts=0, errors=0)
    self._lock = threading.Lock()
    self._closed = False
    self._workers: list[WorkerProcess] = []
    try:
      self._workers = [WorkerProcess(self._setup) for _ in range(num_workers)]
      while not all(w.ready for w in self._workers):
        self._step()
    except BaseException:
      self.close()
      raise

  @property
  def counters(self) -> dict[str, int]:
    """Totals since construction: workers replaced, verdicts `timeout`, verdicts `error`."""
    return dict(self._counters)

  @property
  def worker_pids(self) -> list[int]:
    return [w.pid for w in self._workers]

  def verify(self, samples: Sequence[Sample]) -> list[dict[str, Verdict]]:
    """One {label: verdict} per sample, in the order of `samples`. Calls from several threads take turns."""
    with self._lock:
      if self._closed:
        raise ValueError("verify on a closed VerifierPool")
      self._answers: list[dict[str, Verdict]] = [{} for _ in samples]
      self._todo = deque(t for i, s in enumerate(samples) if (t := self._task(i, s)) is not None)
      try:
        while self._todo or any(w.tasks for w in self._workers):
          self._hand_out()
          self._step()
      except BaseException:  # ctrl-C included: an answer still under way must not meet the next batch
        for w in [w for w in self._workers if w.tasks]:
          self._replace(w)
        raise
      return [{k: row[k] for k in self.labels} for row in self._answers]

  def close(self) -> None:
    """Ends the workers. Safe to call twice."""
    self._closed = True
    for w in self._workers:
      w.kill()
    self._workers = []

  def __enter__(self) -> "VerifierPool":
    return self

  def __exit__(self, *exc) -> None:
    self.close()

  def _task(self, row: int, sample: Sample) -> _Task | None:
    try:
      return _Task(row, pickle.dumps(sample))
    except Exception as e:
      for label in self.labels:
        self._record(row, label, verdict(0.0, "error", f"the sample cannot be pickled: {type(e).__name__}: {e}"))

  def _record(self, row: int, label: str, answer: Verdict) -> None:
    self._answers[row][label] = answer
    self._counters["errors"] += answer.status == "error"
    self._counters["timeouts"] += answer.status == "timeout"

  def _hand_out(self) -> None:
    for w in self._workers:
      if w.ready and not w.tasks and self._todo:
        share = -(-len(self._todo) // (2 * len(self._workers)))
        w.tasks = [self._todo.popleft() for _ in range(min(share, MAX_CHUNK_ROWS))]
        w.deadline = time.monotonic() + self._timeout_secs
        w.send(pickle.dumps([(t.row, t.component, t.payload) for t in w.tasks]))

  def _step(self) -> None:
    """Waits for the next event of any worker and deals with everything that is due."""
    by_handle = {w.conn: w for w in self._workers} | {w.output: w for w in self._workers if w.printing}
    deadlines = [d for w in self._workers if (d := self._deadline(w)) is not None]
    timeout = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
    for handle in wait(list(by_handle), timeout):
      w = by_handle[handle]
      if w not in self._workers:
        continue  # replaced a moment ago
      if handle is w.output:
        w.drain()
      else:
        self._receive(w)
    for w in list(self._workers):
      due = self._deadline(w)
      if due is not None and due <= time.monotonic() and not w.conn.poll():
        self._overdue(w)

  def _deadline(self, w: WorkerProcess) -> float | None:
    if not w.ready:
      return w.started + self._start_secs
    return w.deadline if w.tasks else None

  def _receive(self, w: WorkerProcess) -> None:
    frame = w.receive()
    if not w.ready:
      if frame == "ready":
        w.ready = True
        return
      fault = frame["fault"] if isinstance(frame, dict) else None
      if fault is not None:
        raise ValueError(f"a verifier cannot be built: {fault}")
      raise RuntimeError(f"a verifier worker did not start: {w.kill(grace_secs=1.0)}")
    task = w.tasks[0] if w.tasks else None
    if task is None or not isinstance(frame, list) or frame[:2] != [task.row, task.component]:
      self._died(w)
      return
    self._record(task.row, self.labels[task.component], verdict(*frame[2:]))
    w.deadline = time.monotonic() + self._timeout_secs
    self._next_component(task)
    if task.component == len(self.labels):
      w.tasks.pop(0)

  def _next_component(self, task: _Task) -> None:
    task.component, task.crashes = task.component + 1, 0

  def _overdue(self, w: WorkerProcess) -> None:
    if not w.ready:
      raise RuntimeError(f"a verifier worker did not start within {self._start_secs} s: {w.kill()}")
    task, label = w.tasks[0], self.labels[w.tasks[0].component]
    self._record(task.row, label, verdict(0.0, "timeout", f"no verdict within {self._timeout_secs:g} s"))
    self._next_component(task)
    self._requeue(w)
    self._replace(w)

  def _died(self, w: WorkerProcess) -> None:
    if w.tasks:
      task = w.tasks[0]
      task.crashes += 1
      self._requeue(w)
      how = self._replace(w, grace_secs=1.0)
      if task.crashes > self._max_retries:
        reason = f"the worker died {task.crashes} times on this row, the last by {how}"
        self._record(task.row, self.labels[task.component], verdict(0.0, "error", reason))
        self._next_component(task)
        if task.component == len(self.labels):
          self._todo.remove(task)
    else:
      self._replace(w)

  def _requeue(self, w: WorkerProcess) -> None:
    self._todo.extendleft(reversed([t for t in w.tasks if t.component < len(self.labels)]))

  def _replace(self, w: WorkerProcess, grace_secs: float = 0.0) -> str:
    how = w.kill(grace_secs)
    self._counters["restarts"] += 1
    self._workers[self._workers.index(w)] = WorkerProcess(self._setup)
    return how
