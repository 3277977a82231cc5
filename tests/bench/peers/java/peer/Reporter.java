// SPDX-License-Identifier: Apache-2.0
package peer;

import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Metric;
import org.apache.flink.metrics.MetricConfig;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.reporter.MetricReporter;
import org.apache.flink.metrics.reporter.MetricReporterFactory;

/** Keeps the counters of records read by the sources, for the sampling thread of PeerJob. */
public class Reporter implements MetricReporter {
    static final Map<String, Counter> SOURCES = new ConcurrentHashMap<>();

    public static class Factory implements MetricReporterFactory {
        @Override
        public MetricReporter createMetricReporter(Properties properties) {
            return new Reporter();
        }
    }

    @Override
    public void open(MetricConfig config) {}

    @Override
    public void close() {}

    @Override
    public void notifyOfAddedMetric(Metric metric, String name, MetricGroup group) {
        if (metric instanceof Counter && name.equals("numRecordsIn")) {
            String id = group.getMetricIdentifier(name);
            Map<String, String> v = group.getAllVariables();
            String op = v.get("<operator_name>");
            if (op != null && op.startsWith("Source")) {
                SOURCES.put(id, (Counter) metric);
            }
        }
    }

    @Override
    public void notifyOfRemovedMetric(Metric metric, String name, MetricGroup group) {}

    static long read() {
        long sum = 0;
        for (Counter c : SOURCES.values()) {
            sum += c.getCount();
        }
        return sum;
    }
}
