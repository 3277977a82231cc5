# SPDX-License-Identifier: Apache-2.0
"""Schema registries: from the id in a record to the text of the schema it was written with."""
