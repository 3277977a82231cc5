# SPDX-License-Identifier: Apache-2.0
"""A daily time window, such as `01:00-05:00 Europe/Berlin`. Pure."""

import dataclasses
import datetime
import re
import zoneinfo

_FORM = re.compile(r"(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d)(?:\s+(\S+))?")


@dataclasses.dataclass(frozen=True, slots=True)
class DailyWindow:
    """A daily window; it may end on the next day.

    Attributes:
        start: start time, inclusive.
        end: end time, exclusive.
        zone: time zone of both.
    """

    start: datetime.time
    end: datetime.time
    zone: str = "UTC"

    @staticmethod
    def parse(text: str) -> "DailyWindow":
        """Parse a window such as `01:00-05:00` or `22:30-04:00 Europe/Berlin`.

        Raises:
            ValueError: malformed; the text describes the expected value.
        """
        expected = "a time of day such as `01:00-05:00` or `22:30-04:00 Europe/Berlin`"
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ValueError(expected)
        zone = match[5] or "UTC"
        try:
            start = datetime.time(int(match[1]), int(match[2]))
            end = datetime.time(int(match[3]) % 24, int(match[4]))
            zoneinfo.ZoneInfo(zone)
        except (ValueError, zoneinfo.ZoneInfoNotFoundError, OSError):
            raise ValueError(expected) from None
        if start == end:
            raise ValueError(expected)
        return DailyWindow(start, end, zone)

    def window_date(self, now_ms: int) -> datetime.date | None:
        """Return the start date of the window that contains a time [epoch ms]; None: closed.

        A change to or from daylight saving time makes one window longer or shorter.
        """
        moment = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        local = moment.astimezone(zoneinfo.ZoneInfo(self.zone))
        time = local.time()
        if self.start < self.end:
            return local.date() if self.start <= time < self.end else None
        if time >= self.start:
            return local.date()
        return local.date() - datetime.timedelta(days=1) if time < self.end else None
