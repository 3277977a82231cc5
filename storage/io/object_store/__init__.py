# SPDX-License-Identifier: Apache-2.0
"""Object stores: S3 and what speaks its protocol, Google Cloud, Azure."""
