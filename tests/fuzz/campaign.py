# SPDX-License-Identifier: Apache-2.0
"""Damages tables again and again, and counts by kind of file what readers made of it."""

import collections
import contextlib
import dataclasses
import json
import pathlib
import random
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tests.fuzz.damage import Damage, Guard, damages
from tests.fuzz.reading import CRASH, DIFFERENT, KILLED, REFUSED, SAME

__all__ = ["Campaign", "Finding", "Subject", "run_campaign"]

_SECONDS = 60
"""For one reading of one small table; longer means that a damaged length is believed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """A table to damage copies of.

    Attributes:
        name: for the report.
        table: its directory.
        filters: texts of predicates to read it with.
    """

    name: str
    table: pathlib.Path
    filters: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What became of one damage.

    Attributes:
        damage: it.
        result: one of the outcomes.
        detail: the error, or what differed.
    """

    damage: Damage
    result: str
    detail: str

    @property
    def fault(self) -> bool:
        """Whether the reader should have done better."""
        if self.result in (CRASH, KILLED):
            return True
        kind = self.damage.kind
        told = kind.guard is Guard.CHECKSUM if self.damage.flip else kind.ends
        return self.result == DIFFERENT and told

    def __str__(self) -> str:
        return f"{self.result}: {self.damage}: {self.detail[:300]}"


@dataclasses.dataclass(slots=True)
class Campaign:
    """All findings.

    Attributes:
        findings: in the order they were made.
    """

    findings: list[Finding] = dataclasses.field(default_factory=list)

    @property
    def faults(self) -> list[Finding]:
        """Findings that are ours to mend."""
        return [finding for finding in self.findings if finding.fault]

    def table(self) -> str:
        """Counts by kind of file, for people."""
        counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for finding in self.findings:
            counts[finding.damage.kind.name][finding.result] += 1
        columns = (SAME, REFUSED, DIFFERENT, CRASH, KILLED)
        lines = [f"{'kind of file':<20}" + "".join(f"{name:>11}" for name in columns)]
        total: collections.Counter[str] = collections.Counter()
        for kind in sorted(counts):
            total += counts[kind]
            lines.append(f"{kind:<20}" + "".join(f"{counts[kind][name]:>11}" for name in columns))
        lines.append(f"{'all':<20}" + "".join(f"{total[name]:>11}" for name in columns))
        return "\n".join(lines)


def run_campaign(
    subjects: Sequence[Subject], count: int, seed: int, folder: pathlib.Path
) -> Campaign:
    """Damage copies of the subjects.

    Args:
        subjects: tables.
        count: damages in all, spread evenly over the subjects.
        seed: of the randomness.
        folder: for the copies.
    """
    campaign = Campaign()
    chance = random.Random(seed)
    with _reader() as reader:
        for number, subject in enumerate(subjects):
            share = count // len(subjects) + (number < count % len(subjects))
            copy = folder / subject.name
            shutil.copytree(subject.table, copy)
            planned = damages(subject.name, copy, share, chance)
            campaign.findings.extend(_findings(reader, subject, copy, list(planned)))
            shutil.rmtree(copy)
    return campaign


def _findings(
    reader: "_Reader", subject: Subject, copy: pathlib.Path, planned: Sequence[Damage]
) -> Iterator[Finding]:
    reader.open(subject, copy)
    for damage in planned:
        sound = (copy / damage.path).read_bytes()
        answer = reader.ask({"path": damage.path, "content": damage.apply(sound).hex()})
        if answer is None:
            (copy / damage.path).write_bytes(sound)
            answer = [KILLED, f"exit {reader.stop()}"]
            reader.open(subject, copy)
        yield Finding(damage, *answer)


class _Reader:
    """The child that reads; started when there is none."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, subject: Subject, copy: pathlib.Path) -> None:
        """Let it read a table, before it is damaged."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.reading"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        if self.ask({"table": str(copy), "filters": list(subject.filters)}) is None:
            raise RuntimeError(f"{subject.name} cannot be read without any damage")

    def ask(self, message: object) -> list[str] | None:
        """The answer, or None when the child died or does not answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        ready, _, _ = select.select([self._process.stdout], [], [], _SECONDS)
        line = self._process.stdout.readline() if ready else b""
        return json.loads(line) if line.endswith(b"\n") else None

    def stop(self) -> int | None:
        """End the child; its exit status, None if there is no child."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        return process.wait()


@contextlib.contextmanager
def _reader() -> Iterator[_Reader]:
    reader = _Reader()
    try:
        yield reader
    finally:
        reader.stop()
