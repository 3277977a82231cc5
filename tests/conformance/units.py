# SPDX-License-Identifier: Apache-2.0
"""Cases that call one pure function of the storage layer.

Each function takes the body of a `unit` step and the case's `expect` and yields differences.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from storage.format.metadata.file_meta import EMPTY_STATS, DataFileMeta
from storage.lsm.compaction_policy import CompactionPolicy, pick
from storage.lsm.levels import Levels, sections
from storage.options.options import TableOptions
from storage.options.values import duration_ms
from storage.table.retention.expire import choose_expired
from storage.table.retention.expire_partitions import choose_expired_partitions, partition_time
from storage.table.tags import TagPeriod, TagSchedule
from storage.table.write.dynamic_bucket import AssignerShare, PartitionIndex

__all__ = ["UNITS", "run_unit"]

_MINUTE_MS = 60_000
_NOW_MS = 1_700_000_000_000


def run_unit(body: Mapping[str, Any], expect: Mapping[str, Any]) -> Iterator[str]:
    """Every difference between what a pure function gives and what the case expects."""
    yield from UNITS[body["fn"]](body, expect)


def _file(name: str, *, level: int, size: int, low: int, high: int, sequence: int) -> DataFileMeta:
    return DataFileMeta(
        file_name=name,
        file_size=size,
        row_count=1,
        min_key=_key(low),
        max_key=_key(high),
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=sequence,
        max_sequence_number=sequence,
        schema_id=0,
        level=level,
    )


def _key(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _key_of(key: bytes) -> tuple[int]:
    return (int.from_bytes(key, "big"),)


def _universal_pick(body: Mapping[str, Any], expect: Mapping[str, Any]) -> Iterator[str]:
    runs: Sequence[tuple[int, int]] = body["runs_newest_first_level_size"]
    files = [
        _file(f"run-{i}", level=level, size=size, low=0, high=1, sequence=len(runs) - i)
        for i, (level, size) in enumerate(runs)
    ]
    policy = CompactionPolicy(
        trigger=body["trigger"],
        size_ratio=body["size_ratio"],
        max_size_amplification_percent=body["max_size_amp"],
    )
    levels = Levels.of(files, body["num_levels"], _key_of)
    unit = pick(levels, policy, force_level_0=body["force_l0"])
    found = unit and {"runs": len(unit.files), "output_level": unit.output_level}
    if found != expect["pick"]:
        yield f"pick: expected {expect['pick']}, found {found}"
    elif unit is not None and [file.file_name for file in unit.files] != [
        f"run-{i}" for i in range(len(unit.files))
    ]:
        yield f"pick: not the newest runs: {[file.file_name for file in unit.files]}"


def _interval_partition(body: Mapping[str, Any], expect: Mapping[str, Any]) -> Iterator[str]:
    files = [
        _file(f"file-{i}", level=0, size=1, low=low, high=high, sequence=i)
        for i, (low, high) in enumerate(body["files_min_max"])
    ]
    found = [
        [[_range(file) for file in run.files] for run in section]
        for section in sections(files, _key_of)
    ]
    if "sections" in expect:
        flat = [sorted(file for run in section for file in run) for section in found]
        if flat != [sorted(section) for section in expect["sections"]]:
            yield f"sections: expected {expect['sections']}, found {flat}"
    if "sections_runs" in expect and [sorted(section) for section in found] != [
        sorted(section) for section in expect["sections_runs"]
    ]:
        yield f"sections: expected {expect['sections_runs']}, found {found}"


def _range(file: DataFileMeta) -> list[int]:
    return [_key_of(file.min_key)[0], _key_of(file.max_key)[0]]


def _snapshot_expire(body: Mapping[str, Any], expect: Mapping[str, Any]) -> Iterator[str]:
    times = {
        int(snapshot_id): _NOW_MS - age * _MINUTE_MS
        for snapshot_id, age in body["snapshots_minutes_ago"].items()
    }
    expired = choose_expired(
        times,
        now_ms=_NOW_MS,
        retain_max=body["max"],
        retain_min=body["min"],
        time_retained_ms=body["time_retained_min"] * _MINUTE_MS,
        limit=body["limit"],
        keep_from=body.get("consumer_next"),
    )
    remaining = sorted(set(times) - set(expired))
    if remaining != expect["remaining"]:
        yield f"remaining: expected {expect['remaining']}, found {remaining}"


def _hash_assign(body: Mapping[str, Any], expect: Mapping[str, Any]) -> Iterator[str]:
    assigners = body["num_assigners"]
    index = PartitionIndex(
        body["target_row_num"],
        body.get("max_buckets", -1),
        AssignerShare(body["assigner"], assigners, assigners),
    )
    # one key after another and all at once must give the same
    hashes = np.array(body["hashes"], np.int32)
    found = [int(index.assign(hashes[i : i + 1])[0]) for i in range(len(hashes))]
    if index.assign(hashes).tolist() != found:
        yield f"buckets: {found} changed when they were asked for again"
    if "buckets" in expect and found != expect["buckets"]:
        yield f"buckets: expected {expect['buckets']}, found {found}"
    if "buckets_prefix" in expect and found[:-1] != expect["buckets_prefix"]:
        yield f"buckets: expected {expect['buckets_prefix']} first, found {found}"
    if "last_in" in expect and found[-1] not in expect["last_in"]:
        yield f"buckets: expected the last in {expect['last_in']}, found {found}"


def _auto_tag(body: Mapping[str, Any], expect: Mapping[str, Any]) -> Iterator[str]:
    delay_ms = duration_ms(body["delay"])
    if body.get("mode", "watermark") != "watermark":
        yield f"mode: only watermarks can be given, not {body['mode']}"
    options = TableOptions.from_strings({"tag.creation-period": body["period"]})
    schedule = TagSchedule(TagPeriod.of(options), datetime.timedelta(milliseconds=delay_ms))
    tags: list[str] = []
    found = []
    for watermark in body["watermarks_utc"]:
        name, schedule = schedule.due(datetime.datetime.fromisoformat(watermark))
        tags = [*tags, *([] if name is None else [name])][-body.get("num_retained_max", 1000) :]
        found.append(tags)
    if found != expect["tags_after_each"]:
        yield f"tags: expected {expect['tags_after_each']}, found {found}"


def _partition_expire(body: Mapping[str, Any], expect: Mapping[str, Any]) -> Iterator[str]:
    keys = body.get("partition_keys", ["dt"])
    names: dict[bytes, str] = {}
    times = {}
    for partition in body["partitions"]:
        values = partition if isinstance(partition, list) else [partition]
        name = ",".join("null" if value is None else str(value) for value in values)
        framed = name.encode()
        names[framed] = name
        texts = {
            key: None if value is None else str(value)
            for key, value in zip(keys, values, strict=True)
        }
        times[framed] = partition_time(texts, body.get("pattern"), body.get("formatter"))
    expired = choose_expired_partitions(
        times,
        names,
        now=datetime.datetime.fromisoformat(body["now"]),
        age=datetime.timedelta(milliseconds=duration_ms(body["expiration"])),
        limit=100,
    )
    found = [names[one] for one in expired]
    if found != expect["expired"]:
        yield f"expired: expected {expect['expired']}, found {found}"


UNITS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[str]]] = {
    "universal_pick": _universal_pick,
    "interval_partition": _interval_partition,
    "snapshot_expire": _snapshot_expire,
    "hash_assign": _hash_assign,
    "auto_tag": _auto_tag,
    "partition_expire": _partition_expire,
}
"""Functions that exist; a case that asks for another one must be left out by `features`."""
