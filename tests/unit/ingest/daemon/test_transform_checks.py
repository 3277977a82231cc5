# SPDX-License-Identifier: Apache-2.0
"""Transforms in a configuration: which rule wins, and what is refused before anything starts."""

import pathlib
import re

import pytest

from ingest.daemon.configuration import load_settings, offline
from ingest.daemon.requests.request_handler import fixed_changes
from ingest.transform.rules import TransformRule, source_key_of, transform_rule
from storage.errors import InvalidOptionError

HEAD = """
source: {type: files, path: /tmp}
sink:
  warehouse: /tmp/lake
  time.zone: Europe/Berlin
  metadata.columns: {prefix: _m_, columns: [op, offset]}
pipeline: {name: shop}
"""


def loaded(tmp_path, tables, head=HEAD):
    path = tmp_path / "shop.yaml"
    path.write_text(f"{head}tables:\n{tables}")
    return load_settings(path)


def test_later_rules_win_key_by_key_and_masks_add_up(tmp_path):
    settings = loaded(
        tmp_path,
        """
  - {match: 'ods.*', filter: "a > 0", columns.exclude: [x], mask: {p: md5, q: md5}, deletes: soft}
  - {match: 'ods.t', computed: ["b = a + 1"], columns.exclude: [y], mask: {q: sha256}}
  - {match: 'ods.other', filter: "c"}
""",
    )
    assert transform_rule(settings, "ods.t") == TransformRule(
        filter="a > 0",
        computed=("b = a + 1",),
        exclude=("y",),
        mask={"p": "md5", "q": "sha256"},
        metadata=("op", "offset"),
        metadata_prefix="_m_",
        soft_delete=True,
    )
    assert transform_rule(settings, "elsewhere.t").derived_names == ("_m_op", "_m_offset")


@pytest.mark.parametrize(
    ("rule", "key", "source"),
    [
        ("primary.key: [id]", ("id",), ("id",)),
        ("primary.key: [dt, id]", ("dt", "id"), ("id",)),
        ("primary.key: [k]", ("k",), ("a", "b")),
        ("bucket: 2", (), ()),
    ],
)
def test_decoders_know_the_key_by_columns_of_the_source(tmp_path, rule, key, source):
    computed = """computed: ["c = concat(a, b)", "k = upper(c)", "dt = date_format(at, 'yyyy')"]"""
    settings = loaded(tmp_path, f"  - {{match: t.t, {rule}, {computed}}}\n")
    assert settings.primary_key("t.t") == key
    assert source_key_of(settings, "t.t") == source


MISTAKES = [
    ("filter: 'a >'", "tables[0].filter", "at character"),
    ("filter: 'uper(a) = 1'", "tables[0].filter", "did you mean `upper`?"),
    ("computed: ['a = 1', 'upper(b)']", "tables[0].computed[1]", ""),
    ("computed: ['a = 1', 'a = 2']", "tables[0]", "defined twice"),
    ("mask: {a: sha257}", "tables[0].mask.a", "did you mean `sha256`?"),
    ("mask: {a: 'last(x)'}", "tables[0].mask.a", "last(4)"),
    ("mask: {id: redact}, primary.key: [id]", "tables[0].mask.id", "use sha256"),
    ("mask: {a: sha256}, columns.exclude: [a]", "tables[0]", "masked and excluded"),
    ("columns.exclude: [id], primary.key: [id]", "tables[0].columns.exclude", "key column"),
    ("partition.by: [\"d = date_formt(a, 'y')\"]", "tables[0].partition.by[0]", "date_format"),
    ("partition.by: ['d = upper(a)']", "tables[0].partition.by", "bucket: -1"),
    ("partition.by: [d], primary.key: [id], bucket: 4", "tables[0].partition.by", "bucket: -1"),
    (
        "partition.by: [d], primary.key: [id], bucket: -1, table.properties: {sequence.field: x}",
        "tables[0].partition.by",
        "sequence.field",
    ),
]


@pytest.mark.parametrize(("rule", "key", "text"), MISTAKES, ids=[rule for rule, _, _ in MISTAKES])
def test_mistakes_are_named_by_their_key(tmp_path, rule, key, text):
    with pytest.raises(InvalidOptionError) as caught:
        loaded(tmp_path, f"  - {{match: t.t, {rule}}}\n")
    assert caught.value.context["key"] == key
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("head", "key", "text"),
    [
        (HEAD.replace("offset]", "ofset]"), "sink.metadata.columns", "did you mean `offset`?"),
        (HEAD.replace("Europe/Berlin", "Europe/Berln"), "sink.time.zone", "Europe/Berlin"),
    ],
)
def test_mistakes_of_the_sink(tmp_path, head, key, text):
    with pytest.raises(InvalidOptionError) as caught:
        loaded(tmp_path, "  - {match: t.t}\n", head)
    assert caught.value.context["key"] == key
    assert text in str(caught.value)


def test_validate_says_what_the_source_must_send(tmp_path):
    rule = "partition.by: [\"dt = date_format(at, 'yyyy')\"], primary.key: [dt, id]"
    settings = loaded(tmp_path, f"  - {{match: t.t, {rule}}}\n")
    _, found = offline(settings)
    assert (found.name, found.ok) == ("transforms", True)
    assert "`dt` is in the key of t.t and comes from at" in found.finding


def test_validate_takes_dynamic_buckets(tmp_path):
    assert all(one.ok for one in offline(loaded(tmp_path, "  - {match: t.t, bucket: -1}\n")))


@pytest.mark.parametrize(
    "rule",
    [
        "partition.by: [d]",  # may be in the records' keys
        "partition.by: ['d = upper(a)'], bucket: -1",
        "partition.by: ['d = upper(a)'], primary.key: [d, id]",
    ],
)
def test_partitions_that_can_work(tmp_path, rule):
    settings = loaded(tmp_path, f"  - {{match: t.t, {rule}}}\n")
    assert transform_rule(settings, "t.t").partition_by


@pytest.mark.parametrize("page", ["guides/routes-and-transforms.md", "reference/transforms.md"])
def test_examples_of_the_documents_are_accepted(tmp_path, page):
    text = (pathlib.Path(__file__).parents[4] / "docs" / page).read_text(encoding="utf-8")
    (block,) = (
        block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "mask:" in block
    )
    shop = tmp_path / "shop.yaml"
    shop.write_text(HEAD)
    example = tmp_path / "example.yaml"
    example.write_text(block)
    settings = load_settings([shop, example])
    assert transform_rule(settings, "ods.customers").soft_delete
    assert transform_rule(settings, "ods.orders").partition_columns == ("dt",)
    assert all(one.ok for one in offline(settings))


def test_a_reload_does_not_change_how_keys_are_made(tmp_path):
    rule = "  - {match: t.t, primary.key: [k], computed: ['k = upper(a)'], filter: 'b = 1'}\n"
    old = loaded(tmp_path, rule)
    assert fixed_changes(old, loaded(tmp_path, rule.replace("b = 1", "b = 2")), {"t.t": 0}) == []
    other = loaded(tmp_path, rule.replace("upper", "lower"))
    assert fixed_changes(old, other, {"t.t": 0}) == [
        "tables[], how the primary key of t.t is computed or masked"
    ]
    assert fixed_changes(old, other, {"t.other": 0}) == []
