# SPDX-License-Identifier: Apache-2.0
"""Pictures of the status page: `python -m tests.browser.screenshots [DIRECTORY]`, `build/pages`."""

import sys
from pathlib import Path

from ingest.observe.http_server import HttpServer
from tests.browser.boards import busy_board, fresh_board
from tests.browser.chromium import Browser

SIZES = {"desktop": (1280, 900), "tablet": (820, 1100), "phone": (375, 800)}


def main(directory):
    """Write them."""
    if Browser.found() is None:
        sys.exit("no Chromium on the PATH: install the Debian package chromium")
    boards = {
        "busy": busy_board(),
        "many": busy_board(500, parked=7),
        "calm": busy_board(6, parked=0, errors=False),
        "start": fresh_board(),
    }
    with Browser() as browser:
        for name, (board, metrics, _) in boards.items():
            with HttpServer(metrics, board, host="127.0.0.1", port=0) as server:
                for size, (width, height) in SIZES.items():
                    for dark in (False, True):
                        if name != "busy" and (dark or size == "tablet"):
                            continue
                        tab = browser.open(server.url, width=width, height=height, dark=dark)
                        tab.wait("document.querySelector('#pipeline')?.textContent === 'shop'")
                        if name == "busy":
                            tab.ask("document.querySelector('#rows .name button').click()")
                            tab.wait("document.querySelector('.more dl') !== null")
                        path = directory / f"{name}-{size}-{'dark' if dark else 'light'}.png"
                        tab.picture(path)
                        print(path, *tab.troubles)
                        tab.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/pages"))
