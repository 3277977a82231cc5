# SPDX-License-Identifier: Apache-2.0
"""Counts of calls of tasks to the store and the schema registry, reported to the driver.

A worker process runs one task at a time, so the difference of its counts belongs to the task.
"""

import dataclasses

from ingest.decode.registry.client import REGISTRY_CALLS
from storage.io.call_counts import CallFigures
from storage.io.counting import STORE_CALLS

__all__ = ["TaskUse"]


@dataclasses.dataclass(frozen=True, slots=True)
class TaskUse:
    """Calls of one task, or of several.

    Attributes:
        store: calls to the store of the warehouse.
        registry: requests to the schema registry.
    """

    store: CallFigures = dataclasses.field(default_factory=CallFigures)
    registry: CallFigures = dataclasses.field(default_factory=CallFigures)

    @staticmethod
    def now() -> "TaskUse":
        """Return all calls of this process so far."""
        return TaskUse(STORE_CALLS.figures(), REGISTRY_CALLS.figures())

    def until_now(self) -> "TaskUse":
        """Return the calls of this process since this state."""
        now = TaskUse.now()
        return TaskUse(now.store.since(self.store), now.registry.since(self.registry))

    def plus(self, other: "TaskUse") -> "TaskUse":
        """Return the sum of both."""
        return TaskUse(self.store.plus(other.store), self.registry.plus(other.registry))
