"""Every number that the search was tuned with, in one place.

None of them can change what counts as an answer: only what ran and fitted does. They decide how many trials that takes.
Unless its sentence says otherwise, a number was chosen for few trials over the recorded curves in
`tests/benchmarks/recordings`, and `tests/unit/search/test_recorded_curves.py` referees every change.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    # The climb: one process that goes through many sizes.
    rung: float = 0.02
    """A climb chooses among sizes this far apart, as a share; larger makes it end further from the edge."""
    leap: float = 4.0
    """A climb's next size is at most this many times the last; larger skips more of the flat part and risks a failure
    far above the edge, which ends the climb."""
    near_budget: float = 0.96
    """From this share of the budget on, the climb steps over the edge; larger costs it more sizes on the way there."""
    slow_step_ms: float = 5_000
    """A climb ends after a step slower than this, because more sizes would cost more than they tell. Not fitted."""
    most_sizes: int = 16
    """No process runs more sizes than this; larger lets slow models spend longer in one trial."""
    foothold: float = 0.4
    """Where other lanes predict the edge, a climb begins at this share of it; larger saves sizes and may begin too
    high."""

    # The line through the peaks of a lane.
    baseline: float = 0.7
    """A line goes through the largest batch and one of at most this share of it: two that are closer say more about
    noise than about slope."""
    rise: float = 1.2
    """Two peaks show a slope when one is this many times the other; noise is up to 1.03 times in the recordings."""

    # The belief about the edge of a lane.
    noise: float = 0.015
    """Two runs of one batch differ by about this share in their peak, as recorded; larger trusts single peaks less."""
    drift: float = 0.09
    """A peak predicts the edge this much worse for each doubling up to it; larger trusts small batches less."""
    edge_doubt: float = 0.05
    """No edge is known better than to this share; larger comes down from a failure in longer steps."""
    even_share: float = 0.05
    """This share of the belief lies evenly over all that is possible; larger turns to bisection sooner."""

    # The next size in a lane.
    sure: float = 0.8
    """A lane that can win with less likelihood than this is asked just that first, before its edge."""
    least_step: float = 0.005
    """The first step after a surprise is no shorter than this share of the batch, even at resolution 0."""
    widening: float = 4.0
    """Each surprise in a row makes the next step this many times as long; larger overshoots more and bisects more."""
    even_from: int = 6
    """In half precision even batches are preferred where the resolution is more than this many samples. Not fitted."""

    # What a climb and other lanes prove.
    climb_trust: float = 0.95
    """After a failure in a fresh process, sizes of a climb above this share of it no longer count as fits."""
    climb_doubt: float = 1.1
    """While no fresh process has fitted, up to this many times the end of a climb may fit; larger asks more lanes
    whether they can win, smaller misses lanes that can."""
    room_doubt: float = 1.05
    """A failure right after another size is doubted when a fresh process leaves room for this many times the batch."""
    line_doubt: float = 1.08
    """A lane's own line may be wrong by this factor before the lane is given up; smaller misses the best lane."""
    vague: float = 0.04
    """A lane whose predicted edge may be off by more than this share is measured by a climb first."""
    half_precision_least: float = 0.45
    """A sample takes at least this share of its float32 memory in half precision, over all models recorded."""
    half_precision_most: float = 1.05
    """And at most this share: some models save nothing."""
    alike_precision: float = 0.85
    """In another precision of the same width a sample takes at least this share, and at most its inverse."""

    # The answer.
    last_share: float = 0.6
    """A batch that fits while larger ones are open is the answer this often, over recorded curves; larger runs more
    trials at full length at once."""
    divisor_from: float = 0.9
    """A divisor of the effective batch is preferred if it is at least this share of the largest batch. Not fitted."""

    # Buckets, which take turns in one process. Not fitted.
    bucket_multiple: int = 8
    """Boundaries are multiples of this, as hardware likes its shapes."""
    bucket_worth: float = 0.1
    """Buckets have to save this share of all tokens, or they are not worth their trials."""
    bucket_most_shrinks: int = 10
    """After this many shrinks the buckets are given up."""
    bucket_ample: float = 0.25
    """A first turn at this share of what may fit shows whether the model allows buckets at all; and where this share
    of the budget stays free, one turn at full size is proof enough."""
    bucket_shrink: float = 0.95
    """After turns at full size, or when they need too much, every batch shrinks by this."""
    bucket_turns: int = 3
    """So many turns in a row have to fit, each in an order of its own and smaller than the one before."""

    # The forecast of the remaining time.
    steps_per_size: int = 6
    """A size takes about as long as this many steps, validation included."""
    steps_to_fail: int = 2
    """A size that does not fit takes about as long as this many steps."""
    cut_short: float = 0.5
    """A trial that does not fit takes about this share of the overhead of a whole one."""
    plays: int = 9
    """The search is played to its end this many times; larger is steadier and slower."""


TUNING = Tuning()
