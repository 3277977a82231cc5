# SPDX-License-Identifier: Apache-2.0
"""Writes `golden/default.yaml` anew: what the chart makes of the least values."""

from pathlib import Path

from tests.helm.chart import rendered

if __name__ == "__main__":
    path = Path(__file__).parent / "golden" / "default.yaml"
    path.write_text(rendered("default"), encoding="utf-8")
