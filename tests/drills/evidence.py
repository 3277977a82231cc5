# SPDX-License-Identifier: Apache-2.0
"""What a drill showed."""

import dataclasses
from typing import Any


@dataclasses.dataclass
class Evidence:
    """What a drill showed, for the summary."""

    drill: str
    seconds: float = 0.0
    records: int = 0
    batches: int = 0
    starts: int = 0
    shown: dict[str, str] = dataclasses.field(default_factory=dict)
    events: dict[str, int] = dataclasses.field(default_factory=dict)
    alerts: list[str] = dataclasses.field(default_factory=list)
    unready: list[str] = dataclasses.field(default_factory=list)
    exits: list[int] = dataclasses.field(default_factory=list)
    recovered_s: float | None = None
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
