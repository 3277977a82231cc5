# SPDX-License-Identifier: Apache-2.0
"""Writes `golden/` anew: what the chart makes of the least values, and a template of executors.

The template is also what Spark gets in `tests/kubernetes`.
"""

from pathlib import Path

from tests.helm.chart import one, render, rendered

GOLDEN = Path(__file__).parent / "golden"


def texts() -> dict[str, str]:
    """What the files must hold, by name."""
    chart = one(render("kubernetes"), "ConfigMap", "-chart")
    return {
        "default.yaml": rendered("default"),
        "executor-pod.yaml": chart["data"]["executor-pod.yaml"],
    }


if __name__ == "__main__":
    for name, text in texts().items():
        (GOLDEN / name).write_text(text, encoding="utf-8")
