# SPDX-License-Identifier: Apache-2.0
"""What is compared between two systems."""

import dataclasses

from storage.catalog.catalog import FileSystemCatalog
from tests.bench import events

__all__ = ["Measured", "commit_times"]


def commit_times(catalog: FileSystemCatalog) -> list[float]:
    """When each snapshot of the orders table was committed [s since 1970]."""
    snapshots = catalog.table(events.TABLE).snapshots
    return [snapshots.read(number).time_ms / 1000 for number in sorted(snapshots.ids())]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run over a whole topic.

    Attributes:
        events: read.
        whole_s: from the start of the process to its end [s].
        whole_cpu_s: of all processes [CPU s].
        steady_events: read after the first part.
        steady_s: from the end of the first part to the last commit [s].
        steady_cpu_s: in that time [CPU s].
        first_commit_s: from the start of the process to the first commit [s].
        commits: snapshots.
        peak_mb: largest memory of all processes [MB].
    """

    events: int
    whole_s: float
    whole_cpu_s: float
    steady_events: int
    steady_s: float
    steady_cpu_s: float
    first_commit_s: float
    commits: int
    peak_mb: float

    @property
    def rates(self) -> dict[str, float]:
        """Events per second, and per CPU second; larger is better."""
        return {
            "whole, wall": self.events / self.whole_s,
            "whole, CPU": self.events / self.whole_cpu_s,
            "steady, wall": self.steady_events / self.steady_s,
            "steady, CPU": self.steady_events / self.steady_cpu_s,
        }
