# SPDX-License-Identifier: Apache-2.0
"""What tasks asked of the store and of the schema registry, on its way to the driver.

A worker process runs one task at a time, so the difference of its counts is the task's.
"""

import dataclasses

from ingest.decode.registry.client import REGISTRY_CALLS
from storage.io.call_counts import CallFigures
from storage.io.counting import STORE_CALLS

__all__ = ["TaskUse"]


@dataclasses.dataclass(frozen=True, slots=True)
class TaskUse:
    """Calls of one task, or of several together.

    Attributes:
        store: calls of the warehouse's store.
        registry: requests to the schema registry.
    """

    store: CallFigures = dataclasses.field(default_factory=CallFigures)
    registry: CallFigures = dataclasses.field(default_factory=CallFigures)

    @staticmethod
    def now() -> "TaskUse":
        """All calls of this process so far."""
        return TaskUse(STORE_CALLS.figures(), REGISTRY_CALLS.figures())

    def until_now(self) -> "TaskUse":
        """Calls of this process since this state of it."""
        now = TaskUse.now()
        return TaskUse(now.store.since(self.store), now.registry.since(self.registry))

    def plus(self, other: "TaskUse") -> "TaskUse":
        """Both together."""
        return TaskUse(self.store.plus(other.store), self.registry.plus(other.registry))
