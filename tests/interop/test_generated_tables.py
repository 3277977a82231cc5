# SPDX-License-Identifier: Apache-2.0
"""The generator: the same cases from the same seed, and nothing left out."""

import pytest

from tests.interop.carry_out import leaves_compaction
from tests.interop.generated_tables import (
    COUNT,
    DIMENSIONS,
    NESTED,
    SCALARS,
    SEED,
    SPARK_LACKS,
    cases,
    coverage,
)
from tests.interop.quirks import quirk_of


def test_a_seed_gives_the_same_cases() -> None:
    again = cases.__wrapped__()
    assert again == cases()
    assert [case.steps for case in again[::6]] == [case.steps for case in cases()[::6]]
    assert cases(SEED + 1) != cases(SEED)


@pytest.mark.parametrize("seed", [SEED, 1, 2, 3])
def test_every_value_of_every_dimension_occurs(seed: int) -> None:
    found = cases(seed)
    counts = coverage(found)
    assert len(found) == COUNT >= 40
    wanted = {(name, value) for name, values in DIMENSIONS.items() for value in values}
    wanted |= {("type", text) for text in (*SCALARS, *NESTED)}
    assert {item for item in wanted if not counts[item]} == set()


@pytest.mark.parametrize("seed", [SEED, 1, 2, 3])
def test_every_peer_has_forty_tables(seed: int) -> None:
    """What we write and a peer reads, and what it writes and we read; only quirks leave cases out.

    Java reads all that we write; its quirk keeps it from writing. Spark has its own cases.
    """
    found = cases(seed)
    for peer in ("java", "pypaimon", "pypaimon-rust"):
        assert sum(quirk_of(peer, case) is None for case in found) >= 40, peer
    assert sum(quirk_of("spark", case) is None for case in cases(seed, spark=True)) >= 40
    assert 5 <= sum(leaves_compaction(case) for case in found) <= COUNT // 2


def test_cases_for_spark_keep_to_what_it_has() -> None:
    counts = coverage(cases(spark=True))
    assert not any(counts[lacking] for lacking in SPARK_LACKS)
