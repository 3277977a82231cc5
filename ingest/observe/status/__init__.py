# SPDX-License-Identifier: Apache-2.0
"""The status page and `/api/status`."""
