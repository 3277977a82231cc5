# SPDX-License-Identifier: Apache-2.0
"""A time of day at which something may be done, such as `01:00-05:00 Europe/Berlin`. Pure."""

import dataclasses
import datetime
import re
import zoneinfo

__all__ = ["DailyWindow"]

_FORM = re.compile(r"(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d)(?:\s+(\S+))?")


@dataclasses.dataclass(frozen=True, slots=True)
class DailyWindow:
    """From one time of day to another, which may be on the next day.

    Attributes:
        start: first moment of it.
        end: first moment after it.
        zone: whose wall clocks these are.
    """

    start: datetime.time
    end: datetime.time
    zone: str = "UTC"

    @staticmethod
    def parse(text: str) -> "DailyWindow":
        """The window of a text such as `01:00-05:00` or `22:30-04:00 Europe/Berlin`.

        Raises:
            ValueError: it is none; says what is wanted.
        """
        wanted = "a time of day such as `01:00-05:00` or `22:30-04:00 Europe/Berlin`"
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(wanted)
        zone = found[5] or "UTC"
        try:
            start = datetime.time(int(found[1]), int(found[2]))
            end = datetime.time(int(found[3]) % 24, int(found[4]))
            zoneinfo.ZoneInfo(zone)
        except (ValueError, zoneinfo.ZoneInfoNotFoundError, OSError):
            raise ValueError(wanted) from None
        if start == end:
            raise ValueError(wanted)
        return DailyWindow(start, end, zone)

    def opened(self, now_ms: int) -> datetime.date | None:
        """The day on which the window opened that is open at a moment [epoch ms]; None: it is shut.

        Wall clocks that are put back or forward make one window longer or shorter.
        """
        moment = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        local = moment.astimezone(zoneinfo.ZoneInfo(self.zone))
        time = local.time()
        if self.start < self.end:
            return local.date() if self.start <= time < self.end else None
        if time >= self.start:
            return local.date()
        return local.date() - datetime.timedelta(days=1) if time < self.end else None
