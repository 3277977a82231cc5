# SPDX-License-Identifier: Apache-2.0
"""Where a stream stands: its tables, its position, what is parked."""
