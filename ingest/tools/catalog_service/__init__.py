# SPDX-License-Identifier: Apache-2.0
"""`lakeward catalog serve`: the REST protocols of Paimon and Iceberg over one catalog."""
