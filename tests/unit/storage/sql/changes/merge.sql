-- MERGE INTO in the spellings of Spark and Flink
CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, s STRING, n BIGINT);
--> 0
CREATE TABLE a (k INT, s STRING, n BIGINT);
--> 0
CREATE TABLE m (k INT, s STRING, n BIGINT) WITH ('deletion-vectors.enabled' = 'true');
--> 0
CREATE TABLE src (k INT, s STRING, n BIGINT);
--> 0
INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30);
--> 3
INSERT INTO a SELECT * FROM t;
--> 3
INSERT INTO m SELECT * FROM t;
--> 3
INSERT INTO src VALUES (2, 'B', 200), (3, 'C', NULL), (4, 'D', 400);
--> 3
MERGE INTO t USING src ON t.k = src.k WHEN MATCHED AND src.n IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET n = t.n + src.n WHEN NOT MATCHED THEN INSERT *;
--> 3
MERGE INTO default.a AS x USING default.src AS y ON x.k = y.k WHEN MATCHED AND y.n IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET x.n = x.n + y.n WHEN NOT MATCHED THEN INSERT (k, s, n) VALUES (y.k, y.s, y.n);
--> 3
MERGE INTO m USING (SELECT k, s, n FROM src) AS y ON m.k = y.k WHEN MATCHED AND y.n IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET m.n = m.n + y.n WHEN NOT MATCHED THEN INSERT VALUES (k, s, n);
--> 3
SELECT * FROM t ORDER BY k;
--> 1, a, 10 | 2, b, 220 | 4, D, 400
SELECT * FROM a ORDER BY k;
--> 1, a, 10 | 2, b, 220 | 4, D, 400
SELECT * FROM m ORDER BY k;
--> 1, a, 10 | 2, b, 220 | 4, D, 400
MERGE INTO t USING src ON t.k = src.k WHEN MATCHED THEN UPDATE SET *;
--> 2
SELECT * FROM t ORDER BY k;
--> 1, a, 10 | 2, B, 200 | 4, D, 400
MERGE INTO t USING src ON t.k = src.k WHEN NOT MATCHED BY SOURCE AND t.n < 50 THEN UPDATE SET s = t.s || '?' WHEN NOT MATCHED BY SOURCE THEN DELETE;
--> 1
MERGE INTO a USING src ON a.k = src.k AND a.n > 300 WHEN MATCHED THEN UPDATE SET s = 'big' WHEN NOT MATCHED BY SOURCE THEN DELETE;
--> 3
SELECT * FROM a;
--> 4, big, 400
SELECT * FROM t ORDER BY k;
--> 1, a?, 10 | 2, B, 200 | 4, D, 400
MERGE INTO t USING src ON t.k = src.k WHEN NOT MATCHED AND src.n IS NULL THEN INSERT (k, s) VALUES (src.k, 'new');
--> 1
SELECT * FROM t WHERE k = 3;
--> 3, new, NULL
MERGE INTO t USING src ON t.k = src.k WHEN MATCHED THEN UPDATE SET k = src.k, n = 0;
--> 3
MERGE INTO t USING (SELECT 9 AS k, 'i' AS s) AS y ON t.k = y.k WHEN NOT MATCHED THEN INSERT (k, s) VALUES (y.k, y.s);
--> 1
MERGE INTO t USING t AS y ON t.k = y.k AND t.k = 9 WHEN MATCHED THEN DELETE;
--> 1
MERGE INTO t USING src ON false WHEN NOT MATCHED BY SOURCE AND k = 4 THEN DELETE;
--> 1
SELECT k, n FROM t ORDER BY k;
--> 1, 10 | 2, 0 | 3, 0
MERGE INTO t USING (SELECT * FROM src UNION ALL SELECT * FROM src) AS y ON t.k = y.k WHEN MATCHED THEN DELETE;
--> ! match more than one source rows
MERGE INTO a USING (SELECT 4 AS k, s FROM src) AS y ON a.k = y.k WHEN MATCHED AND false THEN DELETE;
--> ! match more than one source rows
MERGE INTO t USING src ON t.n = src.n WHEN MATCHED THEN UPDATE SET k = 77;
--> 0
MERGE INTO t USING src ON t.k = src.k WHEN MATCHED THEN UPDATE SET k = 77;
--> ! Updates to primary keys are not supported
MERGE INTO t USING src ON t.k = src.k WHEN MATCHED THEN UPDATE SET n = src.s;
--> ! a value does not fit its column column_name=`n`
MERGE INTO t USING src ON t.k = src.k WHEN MATCHED THEN UPDATE SET x = 1;
--> ! there is no such column name=`x`
MERGE INTO t USING src ON t.k = src.k WHEN NOT MATCHED THEN INSERT (k, x) VALUES (1, 2);
--> ! there is no such column name=`x`
MERGE INTO t USING src ON t.k = src.k WHEN NOT MATCHED THEN INSERT (k, s) VALUES (1);
--> ! 1 values are given, and 2 are wanted
MERGE INTO t USING src ON t.k = src.k WHEN NOT MATCHED THEN INSERT (k, k) VALUES (1, 2);
--> ! a column is given twice
MERGE INTO t USING (SELECT k FROM src) AS y ON t.k = y.k WHEN MATCHED THEN UPDATE SET *;
--> ! the source has not all columns of the table name=`s`
MERGE INTO t USING (SELECT k FROM src) AS y ON t.k = y.k WHEN NOT MATCHED THEN INSERT *;
--> ! the source has not all columns of the table
MERGE INTO t USING src ON t.k = src.nope WHEN MATCHED THEN DELETE;
--> ! .*src.*nope
MERGE INTO t USING src ON t.k = src.k WHEN NOT MATCHED AND t.n > 1 THEN INSERT *;
--> 0
MERGE INTO t USING t ON t.k = t.k WHEN MATCHED THEN DELETE;
--> ! table and source have the same name
MERGE INTO nope USING src ON nope.k = src.k WHEN MATCHED THEN DELETE;
--> ! there is no such table
MERGE INTO t USING nope ON t.k = nope.k WHEN MATCHED THEN DELETE;
--> ! there is no such table
MERGE INTO t USING src ON t.k = src.k WHEN MATCHED THEN UPDATE SET n = 1, n = 2;
--> ! a column is set twice
CREATE TABLE agg (k INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum');
--> 0
MERGE INTO agg USING src ON agg.k = src.k WHEN NOT MATCHED THEN INSERT (k, n) VALUES (src.k, src.n);
--> ! Merge engine aggregation can not support batch merge into
CREATE TABLE part (k INT PRIMARY KEY NOT ENFORCED, s STRING, n BIGINT) WITH ('merge-engine' = 'partial-update');
--> 0
MERGE INTO part USING src ON part.k = src.k WHEN MATCHED THEN UPDATE SET n = src.n WHEN NOT MATCHED THEN INSERT (k, s) VALUES (src.k, src.s);
--> 3
MERGE INTO part USING src ON part.k = src.k WHEN MATCHED THEN DELETE;
--> ! doesn't support batch delete by default
MERGE INTO part USING src ON part.k = src.k WHEN MATCHED AND src.n IS NOT NULL THEN UPDATE SET n = src.n;
--> 2
SELECT * FROM part ORDER BY k;
--> 2, B, 200 | 3, C, NULL | 4, D, 400
