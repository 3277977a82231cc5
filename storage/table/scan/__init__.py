# SPDX-License-Identifier: Apache-2.0
"""From a snapshot and a filter to splits."""
