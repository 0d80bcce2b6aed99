"""One guarantee as a measurement."""

import math
from typing import NamedTuple


class Row(NamedTuple):
    """What a statement predicts and what was measured.

    It holds if measured <= predicted + tolerance (``at most``), |measured − predicted| <=
    tolerance (``equal``), or measured >= predicted − tolerance (``at least``); never for NaN.
    """

    name: str
    label: str
    what: str
    relation: str
    predicted: float
    measured: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the measurement agrees with the prediction within the tolerance."""
        excess = self.measured - self.predicted
        if not math.isfinite(excess):
            return False
        distance = {"at most": excess, "equal": abs(excess), "at least": -excess}[self.relation]
        return bool(distance <= self.tolerance)

    def record(self) -> dict[str, str | float | bool | None]:
        """For JSON, which knows no NaN."""
        measured = float(self.measured) if math.isfinite(self.measured) else None
        numbers = {"predicted": float(self.predicted), "tolerance": float(self.tolerance)}
        return {**self._asdict(), **numbers, "measured": measured, "holds": self.holds}
