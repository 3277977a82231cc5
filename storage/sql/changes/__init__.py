# SPDX-License-Identifier: Apache-2.0
"""Parts of the statements that change rows; `storage.sql.dml` carries them out."""
