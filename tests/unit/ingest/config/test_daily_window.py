# SPDX-License-Identifier: Apache-2.0
"""Times of day."""

import datetime

import pytest

from ingest.config.setting import DailyWindow


def at(text):
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "moment", "day"),
    [
        ("01:00-05:00", "2024-03-05T00:59:59+00:00", None),
        ("01:00-05:00", "2024-03-05T01:00:00+00:00", "2024-03-05"),
        ("01:00-05:00", "2024-03-05T05:00:00+00:00", None),
        ("22:30-04:00", "2024-03-05T22:30:00+00:00", "2024-03-05"),
        ("22:30-04:00", "2024-03-06T03:59:00+00:00", "2024-03-05"),
        ("22:30-04:00", "2024-03-06T12:00:00+00:00", None),
        ("20:00-24:00", "2024-03-05T23:59:00+00:00", "2024-03-05"),
        ("1:00-5:00 Europe/Berlin", "2024-07-05T23:30:00+00:00", "2024-07-06"),
        ("1:00-5:00 Europe/Berlin", "2024-07-05T22:30:00+00:00", None),
    ],
)
def test_a_window_is_open_on_the_day_it_opened(window, moment, day):
    found = DailyWindow.parse(window).window_date(at(moment))
    assert (None if found is None else found.isoformat()) == day


@pytest.mark.parametrize(
    "text", ["", "1-5", "01:00-25:00", "01:00-01:00", "1:00-2:00 Mars", "1:60-2:00"]
)
def test_nonsense_is_refused(text):
    with pytest.raises(ValueError, match="time of day"):
        DailyWindow.parse(text)
