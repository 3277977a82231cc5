// SPDX-License-Identifier: Apache-2.0
package peer;

import java.io.FileInputStream;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/** One bounded INSERT INTO paimon SELECT FROM kafka in an embedded mini cluster (1 JM + 1 TM, one JVM). */
public class PeerJob {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        try (FileInputStream in = new FileInputStream(args[0])) {
            p.load(in);
        }
        long jvmStart = ManagementFactory.getRuntimeMXBean().getStartTime();
        Configuration conf = new Configuration();
        for (String key : p.stringPropertyNames()) {
            if (key.startsWith("conf.")) {
                conf.setString(key.substring(5), p.getProperty(key));
            }
        }
        TableEnvironment env =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(conf).build());
        env.createTemporarySystemFunction("MICROS", Micros.class);
        int n = Integer.parseInt(p.getProperty("statements"));
        for (int i = 0; i < n - 1; i++) {
            env.executeSql(p.getProperty("sql." + i));
        }
        String insert = p.getProperty("sql." + (n - 1));
        if (Boolean.parseBoolean(p.getProperty("explain", "false"))) {
            System.out.println(env.explainSql(insert));
        }
        long submitted = System.currentTimeMillis();
        TableResult result = env.executeSql(insert);
        List<long[]> series = new ArrayList<>();
        com.sun.management.OperatingSystemMXBean os =
                (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Thread sampler =
                new Thread(
                        () -> {
                            try {
                                while (true) {
                                    series.add(
                                            new long[] {
                                                System.currentTimeMillis(),
                                                Reporter.read(),
                                                os.getProcessCpuTime() / 1_000_000
                                            });
                                    Thread.sleep(200);
                                }
                            } catch (InterruptedException e) {
                                // done
                            }
                        });
        sampler.setDaemon(true);
        sampler.start();
        result.await();
        long ended = System.currentTimeMillis();
        sampler.interrupt();
        sampler.join();
        try (PrintWriter out = new PrintWriter(p.getProperty("result"))) {
            out.print("{\"jvm_start\":" + jvmStart + ",\"submitted\":" + submitted + ",\"ended\":" + ended + ",\"series\":[");
            for (int i = 0; i < series.size(); i++) {
                long[] s = series.get(i);
                out.print((i > 0 ? "," : "") + "[" + s[0] + "," + s[1] + "," + s[2] + "]");
            }
            out.println("]}");
        }
        System.exit(0);
    }
}
