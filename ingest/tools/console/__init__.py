# SPDX-License-Identifier: Apache-2.0
"""The console of `lakeward sql`."""
