# SPDX-License-Identifier: Apache-2.0
"""Table options: declared once, parsed, checked."""
