# SPDX-License-Identifier: Apache-2.0
import pytest

from ingest.pipeline.exchange import BatchPlan, Unwritable
from ingest.pipeline.truncates import TruncationPoint
from ingest.schema.routing import Answers
from storage.errors import InternalError


def test_plan_survives_its_text_form():
    plan = BatchPlan(
        batch_id=3,
        identifier=103,
        run=1,
        time_ms=1_700_000_000_000,
        tables={"shop.orders": 2, "shop.customers": 0},
        only=("shop.orders",),
        skip=("shop.customers",),
        frozen={"shop.orders": "no primary key"},
        floors={"shop.orders": {"shop.orders": {"0": 17}}},
        positions={"shop.orders": {"server": {"topic": {"0": [1, "00000000/0", None]}}}},
        answers={"shop.orders": Answers(frozenset({"b", "a"}), frozenset({("c", "INT")}))},
        write_only={"shop.orders": True},
        truncations={"shop.orders": TruncationPoint("topic", 0, 7, 3)},
        unwritable=(Unwritable("shop.orders", "topic", 0, 9, "too long"),),
    )
    assert BatchPlan.from_property(plan.to_property()) == plan


def test_equal_plans_have_equal_text_whatever_the_order_of_tables():
    one = BatchPlan(batch_id=0, identifier=1, tables={"a.x": 0, "b.y": 1})
    two = BatchPlan(batch_id=0, identifier=1, tables={"b.y": 1, "a.x": 0})
    assert one.to_property() == two.to_property()


def test_a_thousand_tables_fit_a_local_property():
    plan = BatchPlan(
        batch_id=0, identifier=1, tables={f"shop_{i % 7}.table_{i:04d}": i % 3 for i in range(1000)}
    )
    assert len(plan.to_property()) < 20_000


def test_only_and_skip_decide_what_is_wanted():
    plan = BatchPlan(batch_id=0, identifier=1, only=("a.x", "a.y"), skip=("a.y",))
    assert plan.wants("a.x")
    assert not plan.wants("a.y")
    assert not plan.wants("a.z")


def test_without_a_plan_a_task_refuses():
    with pytest.raises(InternalError, match="planned micro-batch"):
        BatchPlan.from_property(None)
