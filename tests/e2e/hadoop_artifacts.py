# SPDX-License-Identifier: Apache-2.0
"""The jars of a Hive metastore and of an HDFS cluster, from Maven's central repository.

Each jar is named, without what its pom asks for: those poms name tools of a JDK 6 and most of
Hadoop.
"""

from pathlib import Path

from tests.e2e.maven_artifacts import Artifact, fetched

__all__ = ["HADOOP_VERSION", "HIVE_VERSION", "hadoop_jars", "hive_jars"]

HADOOP_VERSION = "3.3.6"
HIVE_VERSION = "3.1.3"

_HADOOP = f"""
org.apache.hadoop:hadoop-client-api:{HADOOP_VERSION}
org.apache.hadoop:hadoop-client-runtime:{HADOOP_VERSION}
org.apache.hadoop:hadoop-client-minicluster:{HADOOP_VERSION}
org.slf4j:slf4j-api:1.7.36
org.slf4j:slf4j-simple:1.7.36
commons-logging:commons-logging:1.1.3
ch.qos.reload4j:reload4j:1.2.22
junit:junit:4.13.2
org.hamcrest:hamcrest-core:1.3
org.mockito:mockito-core:2.28.2
net.bytebuddy:byte-buddy:1.9.10
org.objenesis:objenesis:2.6
javax.xml.bind:jaxb-api:2.3.1
javax.activation:javax.activation-api:1.2.0
com.sun.xml.bind:jaxb-impl:2.3.1
com.sun.xml.bind:jaxb-core:2.3.0.1
"""

_HIVE = f"""
org.apache.hive:hive-standalone-metastore:{HIVE_VERSION}
org.apache.hive:hive-storage-api:2.7.0
org.apache.thrift:libfb303:0.9.3
org.apache.thrift:libthrift:0.9.3
com.google.guava:guava:19.0
com.google.protobuf:protobuf-java:2.5.0
org.datanucleus:datanucleus-api-jdo:4.2.4
org.datanucleus:datanucleus-core:4.1.17
org.datanucleus:datanucleus-rdbms:4.1.19
org.datanucleus:javax.jdo:3.2.0-m3
javax.transaction:transaction-api:1.1
org.apache.derby:derby:10.10.2.0
com.zaxxer:HikariCP:2.6.1
org.antlr:antlr-runtime:3.5.2
commons-cli:commons-cli:1.2
commons-collections:commons-collections:3.2.2
commons-lang:commons-lang:2.6
commons-pool:commons-pool:1.5.4
commons-dbcp:commons-dbcp:1.4
org.apache.commons:commons-lang3:3.2
commons-logging:commons-logging:1.1.3
com.fasterxml.jackson.core:jackson-annotations:2.12.0
com.fasterxml.jackson.core:jackson-core:2.12.0
com.fasterxml.jackson.core:jackson-databind:2.12.0
io.dropwizard.metrics:metrics-core:3.1.0
io.dropwizard.metrics:metrics-json:3.1.0
io.dropwizard.metrics:metrics-jvm:3.1.0
com.github.joshelser:dropwizard-metrics-hadoop-metrics2-reporter:0.1.2
org.slf4j:slf4j-api:1.7.36
org.slf4j:slf4j-simple:1.7.36
org.apache.logging.log4j:log4j-api:2.17.1
org.apache.logging.log4j:log4j-core:2.17.1
org.apache.hadoop:hadoop-client-api:{HADOOP_VERSION}
org.apache.hadoop:hadoop-client-runtime:{HADOOP_VERSION}
"""


def hadoop_jars() -> Path:
    """Folder of the jars of an HDFS cluster.

    Raises:
        PartUnavailableError: they are neither cached nor can they be fetched.
    """
    return fetched(f"hadoop-{HADOOP_VERSION}", _artifacts(_HADOOP))


def hive_jars() -> Path:
    """Folder of the jars of a Hive metastore.

    Raises:
        PartUnavailableError: they are neither cached nor can they be fetched.
    """
    return fetched(f"hive-metastore-{HIVE_VERSION}", _artifacts(_HIVE))


def _artifacts(names: str) -> list[Artifact]:
    return [Artifact(*name.split(":")) for name in names.split()]


if __name__ == "__main__":
    print(hadoop_jars(), hive_jars())
