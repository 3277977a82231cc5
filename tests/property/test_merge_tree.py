# SPDX-License-Identifier: Apache-2.0
"""One bucket against the naive model: no history and no option changes what is read."""

import itertools
import pathlib
import tempfile

from hypothesis import given
from hypothesis import strategies as st

from tests.property.bucket_table import BucketTable
from tests.property.model import TableModel
from tests.property.profiles import profile
from tests.property.strategies import SHAPES, cuts_of, input_batch, operations, table_options


class _History:
    """Runs operations on the bucket and on the model, and compares after every commit."""

    def __init__(self, root, shape, options):
        self.shape = shape
        self.schema = shape.schema(options)
        self.table = BucketTable(root, self.schema)
        self.compacts = options.get("write-only") != "true"
        self.model = TableModel(
            shape.key_positions,
            ignore_delete=options.get("ignore-delete") == "true",
            ignore_update_before=options.get("ignore-update-before") == "true",
        )

    def run(self, steps):
        for name, argument in steps:
            getattr(self, name)(*([] if argument is None else [argument]))
        self.commit()

    def write(self, changes):
        self.table.writer.write(input_batch(changes, self.schema))
        self.model.write(changes)

    def flush(self):
        self.table.writer.flush()

    def compact(self):
        self.table.writer.compact()

    def full(self):
        self.table.writer.compact(full=True)

    def crash(self):
        self.table.reopen()
        self.model.discard()
        self.compare()
        # nothing of the lost interval is left behind
        live = {file.file_name for file in self.table.live.values()}
        assert self.table.stored_files() - self.table_garbage == live

    table_garbage: frozenset[str] = frozenset()

    def commit(self):
        message = self.table.commit()
        self.model.commit()
        self.table_garbage |= {file.file_name for file in message.compact.compact_before} - {
            file.file_name for file in message.compact.compact_after
        }
        if self.compacts:
            limit = self.table.context.options.stop_trigger
            assert self.table.levels().run_count <= limit
        assert self.table.writer.levels.runs() == self.table.levels().runs()
        self.compare()

    def compare(self):
        self.table.check()
        assert self.table.scan() == self.model.rows()


@st.composite
def _histories(draw):
    shape = draw(st.sampled_from(SHAPES))
    options = draw(table_options())
    for key in ("ignore-delete", "ignore-update-before"):
        if draw(st.integers(0, 4)) == 0:
            options[key] = "true"
    return shape, options, draw(operations(shape))


@given(_histories())
@profile(short=20)
def test_a_scan_equals_the_model_after_any_history(history):
    shape, options, steps = history
    with tempfile.TemporaryDirectory() as root:
        _History(pathlib.Path(root), shape, options).run(steps)


@given(st.data())
@profile(short=20)
def test_cutting_the_input_and_other_options_change_nothing(data):
    shape = data.draw(st.sampled_from(SHAPES))
    changes = data.draw(shape.changes(40))
    model = TableModel(shape.key_positions)
    model.write(changes)
    model.commit()
    for _ in range(2):
        options = data.draw(table_options())
        bounds = data.draw(cuts_of(len(changes)))
        with tempfile.TemporaryDirectory() as root:
            table = BucketTable(pathlib.Path(root), shape.schema(options))
            for start, end in itertools.pairwise(bounds):
                table.writer.write(input_batch(changes[start:end], table.context.schema))
                if data.draw(st.booleans()):
                    table.commit()
            table.commit()
            assert table.scan(window_bytes=data.draw(st.sampled_from([1, 1 << 20]))) == model.rows()


@given(st.data())
@profile(short=20)
def test_compaction_is_invisible_and_a_full_one_leaves_one_run_without_deletes(data):
    shape = data.draw(st.sampled_from(SHAPES))
    options = data.draw(table_options()) | {"write-only": "true"}
    with tempfile.TemporaryDirectory() as root:
        table = BucketTable(pathlib.Path(root), shape.schema(options))
        for _ in range(data.draw(st.integers(1, 5))):
            table.writer.write(input_batch(data.draw(shape.changes(15)), table.context.schema))
            table.commit()
        before = table.scan()
        table.writer.compact(full=True)
        message = table.commit()
        assert message.data.empty
        assert table.scan() == before
        assert table.levels().run_count <= 1
        assert all(file.delete_row_count == 0 for file in table.live.values())
        again = options.get("compaction.force-rewrite-all-files") == "true" and bool(table.live)
        assert table.writer.compact(full=True) == again
