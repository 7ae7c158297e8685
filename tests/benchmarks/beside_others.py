"""Compare oomtune with the searches of other tools and with trying by hand: `make bench` writes `results.md`.

Given the names of specs, this only prints how long they take by hand.

All searches drive the same runner over the same specs and budgets, so they differ only in what they choose to run.
Memory is noisy, so the searches take turns and the table shows medians. By hand means what people do without a tool:
a fresh process for each try, with the waits that TensorFlow makes by itself.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from oomtune.devices import resolve
from oomtune.domain import Confirm, Fitted, Kind, Lane, Outcome, ProbeSpec, Trial
from oomtune.domain import Search as SearchTrial
from oomtune.search import best_fit
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner
from tests.benchmarks.others import OTHERS, Search, doubling_then_bisection
from tests.benchmarks.searching import out_of_memory, search
from tests.support.outcomes import failed

SPECS = {
    "cnn": ("configs/cnn.yaml", ["search.precision=[float32]", "search.batch_size={min: 1, max: 4096}"]),
    "lstm": ("configs/lstm.yaml", ["search.precision=[float32]", "search.sequence_length=[64]"]),
    "transformer": ("configs/transformer.yaml", ["search.sequence_length=[128]"]),
}
RESULTS = Path(__file__).with_name("results.md")
# By hand: the limit of the spec in MiB, and the largest batch that people would think of.
BY_HAND = {"cnn": (256, 4096), "lstm": (128, 1024), "transformer": (192, 512), "tabular": (96, 16384)}
_ONLY_BY_HAND: dict[str, tuple[str, list[str]]] = {"tabular": ("tests/benchmarks/tabular.yaml", [])}
_NEAR = 0.02
_ROUNDS = 3
_CONFIRMS = 3


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one search took, and its answer."""

    trials: int
    out_of_memory: int
    seconds: float
    answer: int


@dataclass(frozen=True, kw_only=True)
class Edge:
    """The edge as a band, because memory is noisy: `sure` survives all of its confirm runs, `lucky` at least one."""

    sure: int
    lucky: int

    def share(self, batch: int) -> float:
        """Return the batch as a share of the edge; any batch in the band is 100 %."""
        return batch / min(max(batch, self.sure), self.lucky)

    def __str__(self) -> str:
        return f"{self.sure} to {self.lucky}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The medians of a search's runs."""

    spec: str
    search: str
    runs: list[Run]
    edge: Edge

    @property
    def seconds(self) -> float:
        return statistics.median(run.seconds for run in self.runs)

    @property
    def answer(self) -> int:
        return statistics.median_low(run.answer for run in self.runs)

    @property
    def near(self) -> bool:
        return abs(self.edge.share(self.answer) - 1) <= _NEAR

    def __str__(self) -> str:
        trials = statistics.median_low(run.trials for run in self.runs)
        ran_out = statistics.median_low(run.out_of_memory for run in self.runs)
        return (
            f"| {self.spec} | {self.search} | {trials} | {ran_out} | {self.seconds:.0f} s "
            f"| {self.answer} | {self.edge} | {self.edge.share(self.answer):.0%} |"
        )


class Bench:
    """One lane of one spec, with TensorFlow imported. Keeps every outcome."""

    def __init__(self, spec: ProbeSpec) -> None:
        found = resolve(spec.device, ())
        self.spec, self.budget = spec, found.budget
        self.runner = ForkRunner(spec=spec, device=found.device, budget=found.budget, notice=print)
        self.lane: Lane = spec.space.lanes()[0]
        self.outcomes: list[Outcome] = []
        self.ask(1)  # TensorFlow is imported and the disk is warm before anything is timed

    def ask(self, batch: int) -> Outcome:
        return self._run(SearchTrial(candidate=self.lane.at(batch)))

    def _run(self, trial: Trial) -> Outcome:
        self.outcomes.append(self.runner.run(trial))
        return self.outcomes[-1]

    def oomtune(self) -> int:
        history = search(self.spec.space, self.budget, self._run)
        best = best_fit(self.spec.space, history)
        return 0 if best is None else best.candidate.batch_size

    def other(self, theirs: Search) -> int:
        return theirs(self.ask, self.spec.space.batch_sizes[-1], self.budget.budget_bytes)

    def timed(self, name: str) -> Run:
        self.outcomes.clear()
        began = time.monotonic()
        answer = self.oomtune() if name == "oomtune" else self.other(OTHERS[name])
        return Run(
            trials=len(self.outcomes),
            out_of_memory=out_of_memory(self.outcomes),
            seconds=time.monotonic() - began,
            answer=answer,
        )

    def true_edge(self, guess: int) -> Edge:
        """Return the edge to half a percent, searched for around an answer."""
        survived = functools.cache(self._survived)

        def largest(times: int) -> int:
            low, high = int(guess * 0.94), int(guess * 1.1)
            while high - low > max(1, 0.005 * low):
                middle = (low + high) // 2
                low, high = (middle, high) if survived(middle) >= times else (low, middle)
            return low

        sure = largest(_CONFIRMS)
        return Edge(sure=sure, lucky=max(sure, largest(1)))

    def _survived(self, batch: int) -> int:
        trial = Confirm(candidate=self.lane.at(batch))
        return sum(self._run(trial).kind is Kind.FITS for _ in range(_CONFIRMS))


def beside_others() -> list[Row]:
    rows = []
    for name, (path, settings) in SPECS.items():
        bench = Bench(load_spec(path, settings=settings).spec)
        try:
            rounds = [{other: bench.timed(other) for other in ("oomtune", *OTHERS)} for _ in range(_ROUNDS)]
            edge = bench.true_edge(statistics.median_low(runs["oomtune"].answer for runs in rounds))
        finally:
            bench.runner.close()
        for search_name in rounds[0]:
            rows.append(Row(spec=name, search=search_name, runs=[runs[search_name] for runs in rounds], edge=edge))
            print(rows[-1], flush=True)
    return rows


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """Seconds by hand and with `oomtune probe`, both from a cold start, for the same model and limit."""

    spec: str
    hand_s: float
    ours_s: float

    @property
    def times(self) -> float:
        return self.hand_s / self.ours_s

    def __str__(self) -> str:
        return (
            f"By hand, with a fresh process for each try, {self.spec}: {self.hand_s:.0f} s; "
            f"`oomtune probe`: {self.ours_s:.0f} s, {self.times:.0f} times faster."
        )


def by_hand(spec: str) -> ByHand:
    limit_mib, most = BY_HAND[spec]
    environment = {
        **os.environ,
        "PYTHONPATH": "configs",
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }

    def runs(batch: int) -> Outcome:
        command = [sys.executable, "-m", "tests.benchmarks.by_hand", spec, str(batch)]
        ended = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False)
        print(f"  by hand, {spec}: batch {batch} {'fits' if ended.returncode == 0 else 'fails'}", flush=True)
        return Fitted(peak_bytes=0) if ended.returncode == 0 else failed(batch_size=batch)

    began = time.monotonic()
    doubling_then_bisection(runs, most, 0)
    hand_s = time.monotonic() - began
    path, settings = (SPECS | _ONLY_BY_HAND)[spec]
    with tempfile.TemporaryDirectory() as folder:
        chosen = [word for setting in settings for word in ("--set", setting)]
        output = ["--output", f"{folder}/tuned.yaml", "--fresh", "--quiet"]
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "oomtune", "probe", path, *chosen, *output], check=True)
        return ByHand(spec=spec, hand_s=hand_s, ours_s=time.monotonic() - began)


def main(only_by_hand: list[str]) -> int:
    if only_by_hand:
        print(*(by_hand(spec) for spec in only_by_hand), sep="\n")
        return 0
    rows = beside_others()
    hands = [by_hand(spec) for spec in BY_HAND]
    lines = [
        "| spec | search | trials | out of memory | time | answer | true edge | of it |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
        *(str(row) for row in rows),
        "",
        *(f"- {hand}" for hand in hands),
    ]
    RESULTS.write_text("\n".join(lines) + "\n")
    print(*lines, sep="\n")
    fastest = [
        min((row for row in rows if row.spec == spec and row.near), key=lambda row: row.seconds) for spec in SPECS
    ]
    return 0 if all(row.search == "oomtune" for row in fastest) and max(hand.times for hand in hands) >= 10 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
