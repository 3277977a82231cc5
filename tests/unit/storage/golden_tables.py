# SPDX-License-Identifier: Apache-2.0
"""Tables written by Apache Paimon (Java), with their schemas and manifest entries."""

import dataclasses
import pathlib
import shutil

from storage.format.metadata.file_meta import FileKind, ManifestEntry
from storage.format.metadata.manifest import decode_entries
from storage.format.metadata.schema import TableSchema
from storage.table.table import FileStoreTable

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "data" / "public"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/table"))


@dataclasses.dataclass(frozen=True)
class GoldenTable:
    """One case: `root` is the table directory."""

    case: str

    @property
    def root(self) -> pathlib.Path:
        return GOLDEN / self.case / "table"

    @property
    def schemas(self) -> dict[int, TableSchema]:
        files = (self.root / "schema").glob("schema-*")
        read = [TableSchema.from_json(path.read_bytes()) for path in files]
        return {schema.id: schema for schema in read}

    def copied_to(self, root: pathlib.Path) -> FileStoreTable:
        """A copy that may be written to."""
        shutil.copytree(self.root, root)
        for path in (root, *root.rglob("*")):
            path.chmod(0o755)
        return FileStoreTable.open(str(root))

    def manifests(self) -> list[pathlib.Path]:
        """Data manifests; neither lists nor index manifests."""
        return sorted((self.root / "manifest").glob("manifest-[0-9a-f]*"))

    def manifest_lists(self) -> list[pathlib.Path]:
        return sorted((self.root / "manifest").glob("manifest-list-*"))

    def parquet_files(self) -> list[tuple[pathlib.Path, ManifestEntry]]:
        """Every Parquet data and changelog file with an entry that adds it."""
        return self.files("parquet")

    def files(self, file_format: str) -> list[tuple[pathlib.Path, ManifestEntry]]:
        """Every data and changelog file of a format with an entry that adds it."""
        paths = {path.name: path for path in self.root.rglob(f"*.{file_format}")}
        entries = [e for m in self.manifests() for e in decode_entries(m.read_bytes())]
        added = {e.file.file_name: e for e in entries if e.kind is FileKind.ADD}
        return [(paths[name], added[name]) for name in sorted(paths) if name in added]
