# SPDX-License-Identifier: Apache-2.0
"""Types of columns: values, texts, Arrow types, casts."""
