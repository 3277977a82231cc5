# SPDX-License-Identifier: Apache-2.0
"""The generator: the same cases from the same seed, and nothing left out."""

import pytest

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


def test_a_seed_gives_the_same_cases() -> None:
    assert cases() == cases()
    assert cases(SEED + 1) != cases(SEED)


@pytest.mark.parametrize("seed", [SEED, 1, 2, 3])
def test_every_value_of_every_dimension_occurs(seed: int) -> None:
    found = cases(seed)
    counts = coverage(found)
    assert len(found) == COUNT >= 40
    wanted = {(name, value) for name, values in DIMENSIONS.items() for value in values}
    wanted |= {("type", text) for text in (*SCALARS, *NESTED)}
    assert {item for item in wanted if not counts[item]} == set()


def test_cases_for_spark_keep_to_what_it_has() -> None:
    counts = coverage(cases(spark=True))
    assert not any(counts[lacking] for lacking in SPARK_LACKS)
