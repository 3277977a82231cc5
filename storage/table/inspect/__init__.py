# SPDX-License-Identifier: Apache-2.0
"""System tables and statistics."""
