# SPDX-License-Identifier: Apache-2.0
"""Drawing histories from seeds.

A free history moves the machinery at random and holds rows for which that must not show. A
scheduled one holds any rows, on a table that flushes once per commit and compacts everything when
it is told to (or at each commit, where the table looks up).
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.property.draw_rows import KEY_POOLS, OTHER_POOLS, PARTITION_POOLS, RowSource, Rules
from tests.property.histories import History, Step
from tests.property.scenarios import FREE, SCHEDULED, Scenario

__all__ = ["FEATURES", "draw"]

FEATURES = frozenset({"input", "lookup", "full-compaction", "vectors", "first-row"})
"""What tables may use: producers, deletion vectors, and the engine that always looks up."""

_BIG = "256 mb"


def draw(seed: int, features: frozenset[str] = FEATURES, only: str | None = None) -> History:
    """The history of a seed.

    Args:
        seed: any number.
        features: what the tables may use: names of producers,
            `vectors`, `first-row`.
        only: scenario; None: any.
    """
    chance = random.Random(seed)
    free = chance.random() < 0.7
    known = [one for one in (FREE if free else SCHEDULED) if _known(one, features)]
    scenario = chance.choice(known)
    if only is not None:
        scenario = next(one for one in (*FREE, *SCHEDULED) if one.name == only)
        free = scenario in FREE
    return _Drawing(chance, scenario, features, free=free).history(seed)


def _known(scenario: Scenario, features: frozenset[str]) -> bool:
    return "first-row" in features or scenario.options.get("merge-engine") != "first-row"


class _Drawing:
    def __init__(
        self, chance: random.Random, scenario: Scenario, features: frozenset[str], *, free: bool
    ) -> None:
        self.chance, self.scenario, self.free = chance, scenario, free
        producers = [name for name in scenario.producers if name in features | {"none"}]
        vectors = scenario.vectors and "vectors" in features and chance.random() < 0.3
        if vectors and "full-compaction" in producers:
            producers.remove("full-compaction")
        self.producer = chance.choice(producers)
        self.first_row = scenario.options.get("merge-engine") == "first-row"
        self.looks_up = self.producer == "lookup" or vectors or self.first_row
        self.vectors = vectors
        self.partition: list[str] = []
        self.lag = False
        self.streams, self.waits = False, True

    # -------------------------------------------------------------------------- table

    def history(self, seed: int) -> History:
        chance, scenario = self.chance, self.scenario
        columns, key = self._columns()
        options = dict(scenario.options)
        cross = self.cross = not set(self.partition) <= set(key)
        if self.producer != "none":
            options["changelog-producer"] = self.producer
        if self.vectors:
            options["deletion-vectors.enabled"] = "true"
        options |= self._bucket_options(cross=cross)
        options |= self._machinery() if self.free else self._schedule()
        options |= self._anything()
        self.options = options
        rules = self._rules(scenario.rules)
        self.rows = RowSource(chance, columns, key, self.partition, rules, scenario.kind_column)
        self.key = key
        self.replays = scenario.options.keys() <= {"rowkind.field", "ignore-update-before"}
        buffer = options.get("write-buffer-size", _BIG)
        known = self.producer != "full-compaction" or not self.free
        return History(
            name=f"{scenario.name}-{seed}",
            columns=columns,
            key=key,
            partition=self.partition,
            options=options,
            window_bytes=chance.choice([None, None, 1, 2_000]),
            exact=buffer == _BIG and not cross and self.waits and known,
            streams=self.streams,
            waits=self.waits,
            steps=self._steps(),
        )

    def _rules(self, rules: Rules) -> Rules:
        if not self.looks_up or not self.scenario.groups:
            return rules
        return Rules(
            kinds=rules.kinds,
            sequence=rules.sequence,
            floor=rules.floor,
            groups=self.scenario.groups,
        )

    def _columns(self) -> tuple[list[tuple[str, str]], list[str]]:
        chance = self.chance
        types = ["BIGINT", "INT", "STRING"] * 2 + list(KEY_POOLS)
        key = [f"k{i}" for i in range(chance.choice([1, 1, 1, 2, 3]))]
        columns = [(name, chance.choice(types)) for name in key]
        values = [
            *(("a", "BIGINT"), ("b", "BIGINT"), ("c", "INT"), ("g", "INT"), ("h", "INT")),
            *(("s", "STRING"), ("x", chance.choice(list(OTHER_POOLS)))),
        ]
        if self.scenario.kind_column is not None:
            values.append((self.scenario.kind_column, "STRING"))
        if chance.random() < 0.5:
            chance.shuffle(values)
        columns += values
        if chance.random() < 0.4:
            self.partition = ["p"]
            place = chance.choice([0, len(columns)])
            columns.insert(place, ("p", chance.choice(list(PARTITION_POOLS))))
            if not (self.scenario.cross and self.free and chance.random() < 0.5):
                key.insert(chance.choice([0, len(key)]), "p")
        return columns, key

    def _bucket_options(self, *, cross: bool) -> dict[str, str]:
        chance = self.chance
        if cross or chance.random() < 0.2:
            return {
                "bucket": "-1",
                "dynamic-bucket.target-row-num": chance.choice(["1", "3", "2000000"]),
            }
        return {"bucket": chance.choice(["1", "1", "2", "5"])}

    def _machinery(self) -> dict[str, str]:
        chance = self.chance
        pools = {
            "write-buffer-size": ["1 b", "1 kb", _BIG, _BIG],
            "target-file-size": ["1 b", "2 kb", "128 mb"],
            "num-sorted-run.compaction-trigger": ["1", "2", "3", "5"],
            "compaction.size-ratio": ["0", "1", "50"],
            "compaction.max-size-amplification-percent": ["0", "25", "200", "9999"],
        }
        options = {name: chance.choice(pool) for name, pool in pools.items()}
        rare = {
            "num-levels": ["2", "3", "9"],
            "num-sorted-run.stop-trigger": ["1", "6"],
            "compaction.total-size-threshold": ["3 kb"],
            "compaction.force-rewrite-all-files": ["true"],
            "compaction.force-up-level-0": ["true"],
            "compaction.small-file-ratio": ["0", "1"],
            "write-only": ["true"],
        }
        for name, pool in rare.items():
            if chance.random() < 0.15:
                options[name] = chance.choice(pool)
        self.lag = self.looks_up and "write-only" in options
        return options | self._cadence()

    def _cadence(self) -> dict[str, str]:
        """When streams compact."""
        chance = self.chance
        if self.producer == "lookup" and not self.vectors and not self.first_row:
            if chance.random() < 0.25:
                self.streams, self.waits = True, False
                gentle = {"lookup-compact": "gentle", "lookup-compact.max-interval": "2"}
                return chance.choice([{"lookup-wait": "false"}, gentle])
        elif not self.looks_up and chance.random() < 0.3:
            self.streams = True
            return {"full-compaction.delta-commits": chance.choice(["1", "2", "3"])}
        self.streams = self.producer != "full-compaction" and chance.random() < 0.5
        return {}

    def _schedule(self) -> dict[str, str]:
        options = {"num-levels": "2" if self.looks_up else self.chance.choice(["2", "3"])}
        if not self.looks_up:
            options |= {
                "num-sorted-run.compaction-trigger": "1000",
                "num-sorted-run.stop-trigger": "2000",
            }
        return options | {"target-file-size": self.chance.choice(["1 b", "128 mb"])}

    def _anything(self) -> dict[str, str]:
        """Options that must not matter anywhere."""
        chance = self.chance
        rare: Mapping[str, Sequence[str]] = {
            "file.format": ["orc", "avro", "parquet"],
            "file.format.per.level": ["0:avro", "0:orc,5:parquet"],
            "manifest.merge-min-count": ["2", "30"],
            "source.split.target-size": ["1 b"],
            "data-file.thin-mode": ["true"],
            "metadata.stats-mode": ["none", "full"],
            "manifest.format": ["avro"],
        }
        options = {n: chance.choice(pool) for n, pool in rare.items() if chance.random() < 0.2}
        if self.producer in ("lookup", "full-compaction") and chance.random() < 0.3:
            options["changelog-producer.row-deduplicate"] = "true"
            if not self.first_row and chance.random() < 0.3:
                options["changelog-producer.row-deduplicate-ignore-fields"] = "x"
        if self.vectors and chance.random() < 0.3:
            options["deletion-vectors.bitmap64"] = "true"
        if self.vectors and chance.random() < 0.3:
            options["deletion-vector.index-file.target-size"] = "1 b"
        return options

    # -------------------------------------------------------------------------- steps

    def _steps(self) -> list[Step]:
        chance = self.chance
        self.columns_added = 0
        self.late = False
        self.unsettled = False
        steps = [self._write()]
        names = [
            *["write"] * 14,
            *["retry", "compact", "compact", "full", "full", "lost", "late", "late"],
            *["add_column", "expire", "reopen", "reopen", "travel", "filter", "filter", "bad"],
            *["lose_lookup", "stream"],
        ]
        for _ in range(chance.randint(9, 29)):
            step = getattr(self, "_" + chance.choice(names))()
            if step is not None:
                steps.append(step)
        if self.late:
            steps.append({"op": "end_late"})
        return [*steps, {"op": "reopen"}, {"op": "travel"}]

    def _write(self) -> Step:
        chance = self.chance
        batches = [self.rows.rows(chance.randint(0, 9)) for _ in range(chance.randint(0, 3))]
        compaction = chance.random() < 0.85
        full = compaction and chance.random() < 0.15
        if self.looks_up and self.waits:
            if not compaction or self.lag:
                self.unsettled, compaction, full = True, False, False
            elif self.unsettled:
                compaction, full = False, False
        return {
            "op": "write",
            "batches": [batch for batch in batches if batch],
            "compaction": compaction,
            "full": full,
        }

    def _retry(self) -> Step:
        return {"op": "retry", "same": self.chance.random() < 0.5, "cut": self.chance.randint(1, 5)}

    def _compact(self, *, full: bool = False, lost: bool = False) -> Step:
        self.unsettled = False
        return {"op": "compact", "full": full or not self.waits, "lost": lost}

    def _full(self) -> Step:
        return self._compact(full=True)

    def _lost(self) -> Step:
        return self._compact(full=self.chance.random() < 0.5, lost=True)

    def _late(self) -> Step | None:
        """Only where what a compaction settles does not depend on when it began."""
        if self.late:
            self.late = False
            return {"op": "end_late"}
        if not self.free or self.producer == "full-compaction" or self.unsettled or self.lag:
            return None
        self.late = True
        return {"op": "begin_late", "full": self.chance.random() < 0.7}

    def _add_column(self) -> Step | None:
        if self.columns_added == 2 or self.late:
            return None
        self.columns_added += 1
        self.rows.add_column(f"n{self.columns_added}")
        return {"op": "add_column", "name": f"n{self.columns_added}"}

    def _expire(self) -> Step:
        return {"op": "expire", "retain": self.chance.randint(1, 5)}

    def _reopen(self) -> Step:
        return {"op": "reopen"}

    def _travel(self) -> Step:
        return {"op": "travel"}

    def _stream(self) -> Step | None:
        """Where changes can be followed, and nothing is between the state and them."""
        follows = self.producer in ("lookup", "full-compaction") or self.replays
        if not follows or (self.vectors and self.unsettled):
            return None
        return {"op": "stream"}

    def _lose_lookup(self) -> Step | None:
        return {"op": "lose_lookup"} if self.looks_up else None

    def _filter(self) -> Step:
        column = self.chance.choice(self.key)
        names = ["EQ", "NE", "LT", "LE", "GT", "GE"]
        return {
            "op": "filter",
            "column": column,
            "compare": self.chance.choice(names),
            "value": self.rows.key_value(column),
        }

    def _bad(self) -> Step | None:
        if not self.scenario.refuses or (self.cross and self.first_row):
            return None  # the index may drop such rows before they meet
        rows: list[list[Any]] = self.rows.rows(self.chance.randint(0, 4))
        rows += self.rows.refused()
        return {"op": "bad", "rows": rows}
