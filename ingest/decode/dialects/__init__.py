# SPDX-License-Identifier: Apache-2.0
"""The JSON formats of other connectors: Canal, Maxwell, OGG, DMS, flat and upsert rows."""
