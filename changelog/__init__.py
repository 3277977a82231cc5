# SPDX-License-Identifier: Apache-2.0
"""Row-level changes of a table: streams of them, and judging them. Begin with `stream_scan`."""
