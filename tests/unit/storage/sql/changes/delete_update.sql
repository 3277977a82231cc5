-- DELETE and UPDATE on tables of every kind
CREATE TABLE k (id INT PRIMARY KEY NOT ENFORCED, s STRING, n BIGINT, d DECIMAL(8, 2));
--> 0
CREATE TABLE a (id INT, s STRING, n BIGINT, d DECIMAL(8, 2));
--> 0
CREATE TABLE m (id INT, s STRING, n BIGINT, d DECIMAL(8, 2)) WITH ('deletion-vectors.enabled' = 'true');
--> 0
INSERT INTO k VALUES (1, 'a', 10, 1), (2, 'b', 20, 2), (3, NULL, 30, 3), (4, 'd', NULL, 4);
--> 4
INSERT INTO a SELECT * FROM k;
--> 4
INSERT INTO m SELECT * FROM k;
--> 4
DELETE FROM k WHERE n > 25;
--> 1
DELETE FROM a WHERE n > 25;
--> 1
DELETE FROM m WHERE n > 25;
--> 1
DELETE FROM k WHERE s IS NULL;
--> 0
UPDATE k SET n = n + 1, s = upper(s) WHERE id < 3;
--> 2
UPDATE a SET n = n + 1, s = upper(s) WHERE id < 3;
--> 2
UPDATE m SET n = n + 1, s = upper(s) WHERE id < 3;
--> 2
SELECT * FROM k ORDER BY id;
--> 1, A, 11, 1.00 | 2, B, 21, 2.00 | 4, d, NULL, 4.00
SELECT * FROM a ORDER BY id;
--> 1, A, 11, 1.00 | 2, B, 21, 2.00 | 4, d, NULL, 4.00
SELECT * FROM m ORDER BY id;
--> 1, A, 11, 1.00 | 2, B, 21, 2.00 | 4, d, NULL, 4.00
UPDATE k SET d = d * 1.125;
--> 3
UPDATE k AS x SET x.s = NULL WHERE x.id = 4;
--> 1
UPDATE default.k SET s = default.k.s || '!' WHERE default.k.id = 1;
--> 1
UPDATE k SET n = (SELECT max(n) FROM a) WHERE id IN (SELECT id FROM m WHERE s = 'B');
--> 1
UPDATE k SET N = 7 WHERE ID = 4;
--> 1
SELECT * FROM k ORDER BY id;
--> 1, A!, 11, 1.13 | 2, B, 21, 2.25 | 4, NULL, 7, 4.50
UPDATE a SET id = id + 100 WHERE s LIKE 'A%';
--> 1
DELETE FROM a WHERE id = (SELECT max(id) FROM a);
--> 1
DELETE FROM a AS x WHERE x.id = 2 AND EXISTS (SELECT 1 FROM m WHERE m.id = x.id);
--> 1
SELECT id FROM a;
--> 4
DELETE FROM k WHERE id IN (1, 2) AND NOT s = 'B';
--> 1
UPDATE k SET id = 5 WHERE id = 2;
--> ! Updates to primary keys are not supported column_name=`id`
UPDATE k SET x = 5;
--> ! there is no such column name=`x` line=`1` column=`14`
UPDATE k SET n = 1, N = 2;
--> ! a column is set twice
UPDATE k SET n = 'many';
--> ! a value does not fit its column column_name=`n`
UPDATE k SET n = nope + 1;
--> ! there is no such column
UPDATE k SET n = 1 WHERE nope > 1;
--> ! there is no such column
UPDATE k SET n = DEFAULT;
--> ! DEFAULT is not known here
UPDATE nope SET n = 1;
--> ! there is no such table
UPDATE `k$snapshots` SET n = 1;
--> ! rows of this cannot be changed
UPDATE k SET n = 1 FROM a WHERE a.id = k.id;
--> ! UPDATE takes no FROM .*MERGE INTO joins tables
UPDATE k SET n = frobnicate(n);
--> ! there is no such function
UPDATE k SET n = count(n);
--> ! an aggregate is of many rows
DELETE FROM k WHERE nope = 1;
--> ! there is no such column
DELETE FROM k WHERE s + 1 = 2 AND s = 'B';
--> ! the query cannot run
DELETE FROM k WHERE id IN (SELECT id FROM nope);
--> ! there is no such table
DELETE FROM nope;
--> ! there is no such table
DELETE FROM k /*+ OPTIONS('scan.tag-name' = 'x') */ WHERE id = 1;
--> ! Tag
DELETE FROM k WHERE read_csv('/etc/passwd') IS NULL;
--> ! there is no such function|the query cannot run
DELETE FROM k;
--> 2
DELETE FROM a;
--> 1
SELECT count(*) FROM k;
--> 0
SELECT count(*) FROM a;
--> 0
-- merge engines
CREATE TABLE agg (id INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum');
--> 0
CREATE TABLE aggdel (id INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum', 'aggregation.remove-record-on-delete' = 'true');
--> 0
CREATE TABLE part (id INT PRIMARY KEY NOT ENFORCED, n BIGINT, s STRING) WITH ('merge-engine' = 'partial-update');
--> 0
CREATE TABLE partdel (id INT PRIMARY KEY NOT ENFORCED, n BIGINT, s STRING) WITH ('merge-engine' = 'partial-update', 'partial-update.remove-record-on-delete' = 'true');
--> 0
CREATE TABLE grouped (id INT PRIMARY KEY NOT ENFORCED, n BIGINT, g INT) WITH ('merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'n', 'partial-update.remove-record-on-sequence-group' = 'g');
--> 0
CREATE TABLE first (id INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('merge-engine' = 'first-row', 'changelog-producer' = 'lookup');
--> 0
CREATE TABLE deaf (id INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('ignore-delete' = 'true');
--> 0
INSERT INTO agg VALUES (1, 1), (2, 2), (1, 5);
--> 3
INSERT INTO aggdel SELECT * FROM agg;
--> 2
INSERT INTO part SELECT id, n, 'x' FROM agg;
--> 2
INSERT INTO partdel SELECT id, n, 'x' FROM agg;
--> 2
INSERT INTO grouped SELECT id, n, 1 FROM agg;
--> 2
INSERT INTO first SELECT * FROM agg;
--> 2
INSERT INTO deaf SELECT * FROM agg;
--> 2
DELETE FROM agg WHERE id = 1;
--> ! Merge engine aggregation doesn't support batch delete by default.*aggregation.remove-record-on-delete
DELETE FROM part WHERE id = 1;
--> ! Merge engine partial-update doesn't support batch delete by default
DELETE FROM first WHERE id = 1;
--> ! Merge engine first-row can not support batch delete
DELETE FROM deaf WHERE id = 1;
--> ! the table ignores deletes
DELETE FROM aggdel WHERE n = 6;
--> 1
DELETE FROM partdel WHERE s = 'x' AND n = 6;
--> 1
DELETE FROM grouped WHERE id = 2;
--> 1
UPDATE agg SET n = 1;
--> ! Merge engine aggregation can not support batch update
UPDATE first SET n = 1;
--> ! Merge engine first-row can not support batch update
UPDATE part SET s = 'y' WHERE id = 2;
--> 1
UPDATE deaf SET n = n * 2;
--> 2
SELECT * FROM aggdel;
--> 2, 2
SELECT * FROM part ORDER BY id;
--> 1, 6, x | 2, 2, y
SELECT * FROM partdel;
--> 2, 2, x
SELECT * FROM grouped;
--> 1, 6, 1
SELECT * FROM deaf ORDER BY id;
--> 1, 12 | 2, 4
-- partitions: truncate and drop
CREATE TABLE p (id INT, dt STRING, hh INT) PARTITIONED BY (dt, hh);
--> 0
INSERT INTO p VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 1), (4, NULL, 1);
--> 4
UPDATE p SET dt = 'c' WHERE id = 1;
--> 1
DELETE FROM p WHERE dt = 'c' AND hh = 1;
--> 1
TRUNCATE TABLE p PARTITION (dt = 'b');
--> 1
TRUNCATE TABLE p PARTITION (id = 1);
--> ! no such partition column
ALTER TABLE p DROP PARTITION (dt = 'b');
--> ! there is no such partition partition=`dt=b` .*dt=a/hh=2
ALTER TABLE p DROP IF EXISTS PARTITION (dt = 'b');
--> 0
ALTER TABLE p DROP PARTITION (id = 2);
--> ! no such partition column
ALTER TABLE p DROP PARTITION (dt = 'a', hh = 2);
--> 1
SELECT * FROM p;
--> 4, NULL, 1
TRUNCATE TABLE p;
--> 1
TRUNCATE TABLE nope;
--> ! there is no such table
TRUNCATE TABLE k;
--> 0
