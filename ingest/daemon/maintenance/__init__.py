# SPDX-License-Identifier: Apache-2.0
"""Work that no batch waits for: compaction, expiry, orphans."""
