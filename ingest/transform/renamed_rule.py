# SPDX-License-Identifier: Apache-2.0
"""A rule under the names that columns have now.

When the source renames a column the table's is renamed, too (ADR 0011). A configuration that says
the former name still means the column: a mask must not come off by a rename. Nor does it by a new
type, for which the table got a further column.
"""

import dataclasses
from collections.abc import Mapping

from ingest.decode.column_names import ColumnNames
from ingest.transform.rule_names import column_nodes
from ingest.transform.rules import TransformRule
from storage.format.metadata.schema import TableSchema
from storage.table.scan.expression_text import parse_expression, split_assignment

__all__ = ["present_rule"]


def present_rule(rule: TransformRule, table: TableSchema) -> TransformRule:
    """The rule with former names of the table's columns replaced by their present ones.

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
        filter=None if rule.filter is None else _expression(rule.filter, present),
        computed=tuple(_assignment(text, present) for text in rule.computed),
        exclude=tuple(dict.fromkeys(present.get(name, name) for name in rule.exclude)),
        mask=masks,
        partition_by=tuple(
            _assignment(text, present) if "=" in text else text for text in rule.partition_by
        ),
    )


def _assignment(text: str, present: Mapping[str, str]) -> str:
    name, expression = split_assignment(text)
    return f"{_quoted(name)} = {_expression(expression, present)}"


def _expression(text: str, present: Mapping[str, str]) -> str:
    nodes = [node for node in column_nodes(parse_expression(text)) if node.name in present]
    for node in sorted(nodes, key=lambda node: -node.start):
        text = text[: node.start] + _quoted(present[node.name]) + text[node.end :]
    return text


def _quoted(name: str) -> str:
    return f"`{name}`" if '"' in name else f'"{name}"'
