// SPDX-License-Identifier: Apache-2.0
package peer;

import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.functions.ScalarFunction;

/** Debezium's MicroTimestamp (microseconds since 1970 as BIGINT) to TIMESTAMP(6): Flink has no function for it. */
public class Micros extends ScalarFunction {
    @DataTypeHint(value = "TIMESTAMP(6)", bridgedTo = TimestampData.class)
    public TimestampData eval(@DataTypeHint("BIGINT") Long us) {
        if (us == null) {
            return null;
        }
        long v = us;
        return TimestampData.fromEpochMillis(Math.floorDiv(v, 1000L), (int) Math.floorMod(v, 1000L) * 1000);
    }
}
