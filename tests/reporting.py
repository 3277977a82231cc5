# SPDX-License-Identifier: Apache-2.0
"""What a case came to, and how a run of cases is printed; shared by both data-driven runners."""

import dataclasses
from collections.abc import Iterable

__all__ = ["CaseReport", "print_summary"]


@dataclasses.dataclass(slots=True)
class CaseReport:
    """The result of one case.

    A case fails when anything in it failed. It is skipped when something in it was left out for a
    stated reason, though the rest ran. It passes when all of it was checked.

    Attributes:
        name: the case.
        failures: one short text per difference.
        left_out: what could not be checked yet, with the capability it waits for.
        checked: names of the parts that were checked.
    """

    name: str
    failures: list[str] = dataclasses.field(default_factory=list)
    left_out: list[str] = dataclasses.field(default_factory=list)
    checked: list[str] = dataclasses.field(default_factory=list)

    @property
    def status(self) -> str:
        """`passed`, `failed` or `skipped`."""
        if self.failures:
            return "failed"
        return "skipped" if self.left_out else "passed"

    @property
    def skip_reason(self) -> str:
        """Why the case counts as skipped, and what of it was checked all the same."""
        reason = "; ".join(dict.fromkeys(self.left_out))
        parts = ", ".join(dict.fromkeys(self.checked))
        return f"{reason} (checked: {parts})" if parts else reason


_FAILURE_CHARACTERS = 600


def _short(text: str) -> str:
    return text if len(text) <= _FAILURE_CHARACTERS else text[:_FAILURE_CHARACTERS] + "…"


def print_summary(reports: Iterable[CaseReport]) -> int:
    """Print skips, failures and the closing line.

    Returns:
        The exit code: 1 when a case failed, else 0.
    """
    by_status: dict[str, list[CaseReport]] = {"passed": [], "failed": [], "skipped": []}
    for report in reports:
        by_status[report.status].append(report)
    for report in by_status["skipped"]:
        print(f"SKIP {report.name}: {report.skip_reason}")
    for report in by_status["failed"]:
        for failure in report.failures:
            print(f"FAIL {report.name}: {_short(failure)}")
    counts = {status: len(group) for status, group in by_status.items()}
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if by_status["failed"] else 0
