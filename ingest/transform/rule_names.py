# SPDX-License-Identifier: Apache-2.0
"""Rules without types: names in their expressions, mistakes in them, and renamed columns.

Types are known only with a table; what is found here is found when the pipeline is checked.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence

from ingest.config.settings import Settings
from ingest.config.suggestion import nearest
from ingest.decode.column_names import ColumnNames
from ingest.decode.metadata_columns import METADATA, checked_metadata
from ingest.transform.expressions import FUNCTIONS
from ingest.transform.masks import parse_mask
from ingest.transform.rules import TransformRule
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.table.scan.expression_text import (
    Call,
    ColumnName,
    Node,
    expression_error,
    nodes_of,
    parse_expression,
    split_assignment,
)

__all__ = [
    "check_part",
    "check_rule",
    "column_nodes",
    "key_recipe",
    "moved_by",
    "present_rule",
    "source_key",
    "source_key_of",
    "transform_rule",
    "wanted_columns",
]


def transform_rule(settings: Settings, table: str) -> TransformRule:
    """The transforms that the settings have for `database.table`; masks add up by column."""
    masks: dict[str, str] = {}
    for rule in settings.tables:
        if rule.covers(table):
            masks.update(rule.mask or {})
    return TransformRule(
        filter=settings.rule_value(table, lambda rule: rule.filter),
        computed=settings.rule_value(table, lambda rule: rule.computed) or (),
        exclude=settings.rule_value(table, lambda rule: rule.columns_exclude) or (),
        mask=masks,
        metadata=settings.sink.metadata_columns,
        metadata_prefix=settings.sink.metadata_prefix,
        soft_delete=settings.rule_value(table, lambda rule: rule.deletes) == "soft",
        partition_by=settings.rule_value(table, lambda rule: rule.partition_by) or (),
    )


def wanted_columns(rule: TransformRule) -> frozenset[str]:
    """Columns of the source that the text of a rule's expressions names.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    inputs = _inputs_by_name(rule)
    filtered = frozenset() if rule.filter is None else _columns_of(parse_expression(rule.filter))
    names = _resolved(filtered, inputs).union(*inputs.values())
    return names - {rule.metadata_prefix + name for name in METADATA}


def source_key(rule: TransformRule, primary_key: Sequence[str]) -> tuple[str, ...]:
    """The columns of the source that a configured primary key is made of.

    Those of the key that the source has; if it has none, those that the key is computed from.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    inputs = _inputs_by_name(rule)
    plain = tuple(name for name in primary_key if name not in inputs)
    if plain or not primary_key:
        return plain
    metadata = {rule.metadata_prefix + name for name in METADATA}
    return tuple(sorted(frozenset().union(*(inputs[name] for name in primary_key)) - metadata))


def source_key_of(settings: Settings, table: str) -> tuple[str, ...]:
    """The columns of the source behind the configured key of `database.table`; () = no key.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    key = settings.primary_key(table)
    return source_key(transform_rule(settings, table), key) if key else ()


def moved_by(rule: TransformRule, primary_key: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Columns of a key that are computed from columns outside of it, and these.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    inputs = _inputs_by_name(rule)
    outside = {*primary_key} | {rule.metadata_prefix + name for name in METADATA}
    moving = {name: inputs[name] - outside for name in primary_key if name in inputs}
    return {name: tuple(sorted(names)) for name, names in moving.items() if names}


def key_recipe(rule: TransformRule, primary_key: Sequence[str], zone: str) -> dict[str, str]:
    """How the columns of a key are made, as digests, for those that are not the source's as such.

    Another recipe gives other keys: rows that the table has would not be found any more.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    texts = {name: f"{text}\0{zone}" for name, text in _inlined(rule).items()}
    texts |= {name: f"mask\0{mask}" for name, mask in rule.mask.items() if name not in texts}
    return {
        name: hashlib.sha256(texts[name].encode()).hexdigest()[:16]
        for name in primary_key
        if name in texts
    }


def _inlined(rule: TransformRule) -> dict[str, str]:
    """The expressions of computed columns, with those of the computed columns that they name."""
    found: dict[str, str] = {}
    for name, text in rule.assignments:
        earlier = sorted(_columns_of(parse_expression(text)) & found.keys())
        found[name] = "\0".join([text.strip(), *(found[each] for each in earlier)])
    return found


def check_rule(rule: TransformRule) -> None:
    """Check what can be checked without the columns of a source.

    Raises:
        InvalidRequestError: an expression is malformed or calls what is not there, a mask or a
            metadata column does not exist, a column is made twice.
    """
    if rule.filter is not None:
        check_part("filter", rule.filter)
    for text in rule.computed:
        check_part("computed", text)
    for text in rule.partition_by:
        check_part("partition.by", text)
    for mask in rule.mask.values():
        check_part("mask", mask)
    checked_metadata(rule.metadata)
    derived = rule.derived_names
    twice = next((name for name in derived if derived.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequestError("a column is defined twice", column=twice)
    both = [name for name in rule.mask if name in rule.exclude]
    if both:
        raise InvalidRequestError("a column is masked and excluded", column=both[0])


def check_part(kind: str, text: str) -> None:
    """Check one text of a rule.

    Args:
        kind: `filter`, `computed`, `partition.by` or `mask`.
        text: as configured.

    Raises:
        InvalidRequestError: as `check_rule`.
    """
    _CHECKS[kind](text)


def _check_assignment(text: str) -> None:
    _check_expression(split_assignment(text)[1])


def _check_partition(text: str) -> None:
    if "=" in text:
        _check_assignment(text)


def _check_expression(text: str) -> None:
    for node in nodes_of(parse_expression(text)):
        if isinstance(node, Call) and node.name not in FUNCTIONS:
            names = (name for name in FUNCTIONS if name.isidentifier())
            raise expression_error(
                text, node.start, f"there is no function `{node.name}`", nearest(node.name, names)
            )


def _check_mask(text: str) -> None:
    parse_mask(text)


_CHECKS: Mapping[str, Callable[[str], None]] = {
    "filter": _check_expression,
    "computed": _check_assignment,
    "partition.by": _check_partition,
    "mask": _check_mask,
}


def _inputs_by_name(rule: TransformRule) -> dict[str, frozenset[str]]:
    """For each computed column the columns in its expression that are not computed."""
    inputs: dict[str, frozenset[str]] = {}
    for name, text in rule.assignments:
        inputs[name] = _resolved(_columns_of(parse_expression(text)), inputs)
    return inputs


def _resolved(names: frozenset[str], inputs: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(inputs.get(name, frozenset({name})) for name in names))


def _columns_of(node: Node) -> frozenset[str]:
    return frozenset(each.name for each in column_nodes(node))


def column_nodes(node: Node) -> list[ColumnName]:
    """Where columns are named in an expression."""
    return [each for each in nodes_of(node) if isinstance(each, ColumnName)]


def present_rule(rule: TransformRule, table: TableSchema) -> TransformRule:
    """Replace former names of the table's columns in a rule by their present ones.

    When the source renames a column the table's is renamed, too (ADR 0011). A configuration with
    the former name still means the column: a mask must not come off by a rename, nor by a new type,
    for which the table got a further column.

    Raises:
        InvalidRequestError: an expression is malformed.
        CorruptDataError: the table's options are not what Lakeward writes.
    """
    names = ColumnNames.of(table.options)
    taken = {*table.field_names, *rule.derived_names}
    present = {
        earlier: column
        for column, former in names.former.items()
        if column in table.field_names
        for earlier in former
        if earlier not in taken
    }
    if not present and not names.typed:
        return rule
    masks = {present[name]: mask for name, mask in rule.mask.items() if name in present}
    masks |= {name: mask for name, mask in rule.mask.items() if name not in present}
    for name, columns in names.typed.items():
        if name in masks:
            masks = dict.fromkeys(columns, masks[name]) | masks
    if not present:
        return dataclasses.replace(rule, mask=masks)
    return dataclasses.replace(
        rule,
        filter=None if rule.filter is None else _renamed_expression(rule.filter, present),
        computed=tuple(_renamed_assignment(text, present) for text in rule.computed),
        exclude=tuple(dict.fromkeys(present.get(name, name) for name in rule.exclude)),
        mask=masks,
        partition_by=tuple(
            _renamed_assignment(text, present) if "=" in text else text
            for text in rule.partition_by
        ),
    )


def _renamed_assignment(text: str, present: Mapping[str, str]) -> str:
    name, expression = split_assignment(text)
    return f"{_quoted(name)} = {_renamed_expression(expression, present)}"


def _renamed_expression(text: str, present: Mapping[str, str]) -> str:
    nodes = [node for node in column_nodes(parse_expression(text)) if node.name in present]
    for node in sorted(nodes, key=lambda node: -node.start):
        text = text[: node.start] + _quoted(present[node.name]) + text[node.end :]
    return text


def _quoted(name: str) -> str:
    return f"`{name}`" if '"' in name else f'"{name}"'
