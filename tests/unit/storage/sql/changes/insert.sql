-- INSERT INTO and INSERT OVERWRITE, VALUES and queries, partitions, types
CREATE TABLE t (k BIGINT NOT NULL, s STRING, n INT, d DECIMAL(6, 2), ts TIMESTAMP(3), b BOOLEAN, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1');
--> 0
INSERT INTO t VALUES (1, 'a', 10, 1.5, TIMESTAMP '2024-01-01 10:00:00.123456', true);
--> 1
INSERT INTO t VALUES (2, NULL, NULL, NULL, NULL, NULL), (3, 'c', 3, 2, NULL, false);
--> 2
INSERT INTO t (k, n) VALUES (4, 40);
--> 1
INSERT INTO t (n, k) VALUES ('50', 5), (60, 6);
--> 2
INSERT INTO default.t (k, s) SELECT k + 10, s FROM t WHERE k < 3;
--> 2
INSERT INTO TABLE t (k) WITH q AS (SELECT 20 AS a) SELECT a FROM q;
--> 1
INSERT INTO t BY NAME SELECT 'by name' AS S, 21 AS k;
--> 1
INSERT INTO t SELECT * FROM t WHERE k = 1;
--> 1
SELECT * FROM t ORDER BY k;
--> 1, a, 10, 1.50, 2024-01-01 10:00:00.123, true
--> 2, NULL, NULL, NULL, NULL, NULL
--> 3, c, 3, 2.00, NULL, false
--> 4, NULL, 40, NULL, NULL, NULL
--> 5, NULL, 50, NULL, NULL, NULL
--> 6, NULL, 60, NULL, NULL, NULL
--> 11, a, NULL, NULL, NULL, NULL
--> 12, NULL, NULL, NULL, NULL, NULL
--> 20, NULL, NULL, NULL, NULL, NULL
--> 21, by name, NULL, NULL, NULL, NULL
INSERT INTO t (k, d) VALUES (1, 2.345);
--> 1
SELECT d FROM t WHERE k = 1;
--> 2.35
INSERT INTO t (k, d) VALUES (1, 12345.678);
--> ! column_name=`d` row=`1`
INSERT INTO t (k, n) VALUES (1, 1), (2, 'x');
--> ! a value does not fit its column column_name=`n` row=`2` value=`x`
INSERT INTO t (k, n) SELECT k, 'word' FROM t;
--> ! column_name=`n` row=`1` value=`word`
INSERT INTO t (k, n) VALUES (1, 3000000000);
--> ! column_name=`n` row=`1` value=`3000000000`
INSERT INTO t (k, n) VALUES (1, 1.5);
--> ! column_name=`n` row=`1`
INSERT INTO t (k, n) VALUES (1, 2), (2, 3.0);
--> 2
INSERT INTO t (k, b) VALUES (1, 'maybe');
--> ! column_name=`b` row=`1` value=`maybe`
INSERT INTO t (k, ts) VALUES (1, '2024-02-30 00:00:00');
--> ! column_name=`ts` row=`1`
INSERT INTO t (k, ts) VALUES (1, '2024-02-28 01:02:03');
--> 1
SELECT ts FROM t WHERE k = 1;
--> 2024-02-28 01:02:03.000
INSERT INTO t (s) VALUES ('no key');
--> ! cannot write null to non-null column\(k\)
INSERT INTO t (k) VALUES (7), (NULL);
--> ! cannot write null to non-null column\(k\) column_name=`k` row=`2`
INSERT INTO t VALUES (1, 'a');
--> ! 2 columns are given, and 6 are wanted .*hint: give k, s, n, d, ts, b
INSERT INTO t (k, s) VALUES (1, 'a'), (2, 'b', 3);
--> ! 3 columns are given, and 2 are wanted
INSERT INTO t (k, s) SELECT 1;
--> ! 1 columns are given, and 2 are wanted
INSERT INTO t (k, x) VALUES (1, 1);
--> ! there is no such column name=`x` line=`1` column=`19`
INSERT INTO t (k, sx) VALUES (1, 1);
--> ! there is no such column.*hint: .*s
INSERT INTO t (k, s, K) VALUES (1, 'a', 2);
--> ! a column is given twice name=`k`
INSERT INTO t BY NAME SELECT 1 AS k, 2 AS other;
--> ! the table has no column of this name name=`other`
INSERT INTO t BY NAME VALUES (1);
--> ! VALUES have no names
INSERT INTO nope VALUES (1);
--> ! there is no such table table=`default.nope`
INSERT INTO `t$files` VALUES (1);
--> ! rows of this cannot be changed
INSERT INTO t PARTITION (k = 1) VALUES (1);
--> ! no partition column .*partitioned by nothing
INSERT INTO t SELECT * FROM nope;
--> ! there is no such table
INSERT INTO t (k) SELECT nope FROM t;
--> ! there is no such column
INSERT INTO t /*+ OPTIONS('scan.snapshot-id' = '1') */ VALUES (1);
--> ! a state of the past cannot be changed
INSERT INTO t /*+ OPTIONS('write-onli' = 'true') */ (k) VALUES (1);
--> ! there is no such option .*write-only
INSERT OVERWRITE t (k, s) VALUES (1, 'only');
--> 1
SELECT k, s FROM t;
--> 1, only
INSERT OVERWRITE t SELECT * FROM t WHERE false;
--> 0
SELECT count(*) FROM t;
--> 0
-- partitions
CREATE TABLE p (k BIGINT, dt DATE, hh INT) PARTITIONED BY (dt, hh);
--> 0
INSERT INTO p VALUES (1, DATE '2024-01-01', 1), (2, DATE '2024-01-01', 2), (3, '2024-01-02', 1);
--> 3
INSERT INTO p PARTITION (dt = '2024-01-03') VALUES (4, 1), (5, 2);
--> 2
INSERT INTO p PARTITION (dt = '2024-01-03', hh = 9) VALUES (6);
--> 1
INSERT INTO p PARTITION (dt = DATE '2024-01-03', hh) SELECT 7, 9;
--> 1
INSERT INTO p PARTITION (hh = NULL) (dt, k) VALUES ('2024-01-04', 8);
--> 1
SELECT * FROM p ORDER BY k;
--> 1, datetime.date(2024, 1, 1), 1
--> 2, datetime.date(2024, 1, 1), 2
--> 3, datetime.date(2024, 1, 2), 1
--> 4, datetime.date(2024, 1, 3), 1
--> 5, datetime.date(2024, 1, 3), 2
--> 6, datetime.date(2024, 1, 3), 9
--> 7, datetime.date(2024, 1, 3), 9
--> 8, datetime.date(2024, 1, 4), NULL
INSERT INTO p PARTITION (dt = 'no date') VALUES (1, 1);
--> ! no value of a partition column
INSERT INTO p PARTITION (k = 1) VALUES ('2024-01-01', 1);
--> ! no partition column .*partitioned by dt, hh
INSERT INTO p PARTITION (dt = '2024-01-03') (dt, k, hh) VALUES ('2024-01-01', 1, 1);
--> ! a column is given twice
INSERT OVERWRITE p SELECT 11, DATE '2024-01-01', 1;
--> 1
SELECT k FROM p ORDER BY k;
--> 2 | 3 | 4 | 5 | 6 | 7 | 8 | 11
INSERT OVERWRITE p PARTITION (dt = '2024-01-03', hh = 9) VALUES (66);
--> 1
INSERT OVERWRITE p PARTITION (dt = '2024-01-03') VALUES (44, 1);
--> 1
SELECT k FROM p ORDER BY k;
--> 2 | 3 | 5 | 8 | 11 | 44 | 66
INSERT OVERWRITE p PARTITION (dt = '2024-01-03', hh = 9) SELECT k FROM p WHERE false;
--> 0
SELECT count(*) FROM p;
--> 7
INSERT OVERWRITE p /*+ OPTIONS('dynamic-partition-overwrite' = 'false') */ PARTITION (dt = '2024-01-03') SELECT k, hh FROM p WHERE false;
--> 0
SELECT k FROM p ORDER BY k;
--> 2 | 3 | 8 | 11
SET 'spark.sql.sources.partitionOverwriteMode' = 'static';
--> 0
INSERT OVERWRITE p VALUES (1, '2024-01-01', 1);
--> 1
SELECT k FROM p;
--> 1
