"""A check whose configuration uses more memory than before, with a name that every format has to escape."""

from __future__ import annotations

from oomtune.domain import Budget, Candidate, Change, CheckResult, CheckVerdict, Fitted
from tests.support.specs import CPU

FITTED = Fitted(peak_bytes=900, step_ms=2.0, duration_s=3.0)
RESULT = CheckResult(
    verdict=CheckVerdict.USES_MORE,
    path="models/a,b.yaml",
    where="models/a,b.yaml:12",
    name="<script>alert(1)</script> | *x*",
    candidate=Candidate(batch_size=8),
    device=CPU,
    budget=Budget(limit_bytes=1_000),
    tolerance=0.05,
    outcome=FITTED,
    expected_peak_bytes=600,
    changes=(Change(what="keras", before="3.1", now="3.2"),),
)
