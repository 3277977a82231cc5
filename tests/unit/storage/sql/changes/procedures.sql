-- CALL sys.…: arguments by place and by name, of both engines
CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('bucket' = '1');
--> 0
CREATE TABLE p (k INT, dt STRING) PARTITIONED BY (dt);
--> 0
INSERT INTO t VALUES (1, 1);
--> 1
INSERT INTO t VALUES (2, 2);
--> 1
INSERT INTO p VALUES (1, 'a'), (2, 'b'), (3, 'c');
--> 3
INSERT INTO p VALUES (4, 'a'), (5, 'b'), (6, 'c');
--> 3
CALL sys.compact('default.t');
--> Success
CALL sys.compact(`table` => 't', compact_strategy => 'minor');
--> Success
CALL sys.compact(`table` => 'p', partitions => 'dt=a;dt=b');
--> Success
SELECT count(*) FROM `p$files`;
--> 4
CALL sys.compact('p', 'order', 'k');
--> Success
CALL sys.compact('p', '', 'zorder', 'k,dt');
--> Success
CALL sys.compact(table => 'p', order_strategy => 'hilbert', order_by => 'k,dt', options => map('target-file-size', '64mb'));
--> Success
CALL sys.compact('p', '', '', '', 'sink.parallelism=4');
--> Success
CALL sys.compact(table => 'p', where => 'dt > ''b''');
--> Success
CALL sys.compact(table => 'p', where => 'dt = ''zzz''');
--> Success
CALL sys.compact(table => 'p', partition_idle_time => '10 d');
--> Success
CALL sys.compact(table => 'p', where => 'k > 1');
--> ! where takes partition columns only name=`k`
CALL sys.compact(table => 'p', where => 'dt > ''b''', partitions => 'dt=a');
--> ! partitions and where cannot be given together
CALL sys.compact(table => 'p', partitions => 'dt');
--> ! no partition
CALL sys.compact(table => 'p', partitions => 'k=1');
--> ! no such partition column
CALL sys.compact(table => 'p', partition_idle_time => 'soon');
--> ! partition_idle_time is a time span
CALL sys.compact(table => 'p', order_strategy => 'random', order_by => 'k');
--> ! no such order
CALL sys.compact(table => 'p', order_strategy => 'order');
--> ! order_strategy needs order_by
CALL sys.compact(table => 'p', order_by => 'k');
--> ! order_by needs order_strategy
CALL sys.compact(table => 'p', order_strategy => 'order', order_by => 'k', partition_idle_time => '1 d');
--> ! partition_idle_time cannot be used with order compact
CALL sys.compact(table => 't', order_strategy => 'order', order_by => 'n');
--> ! .
CALL sys.compact(table => 'p', compact_strategy => 'some');
--> ! no such strategy
CALL sys.compact(table => 'p', options => 'target-file-sise=1');
--> ! there is no such option .*target-file-size
CALL sys.compact(table => 'p', options => 'x');
--> ! the argument options is options such as
CALL sys.compact(table => 'p', tabel => 'p');
--> ! compact has no such argument argument=`tabel` .*did you mean table
CALL sys.compact(table => 'p', TABLE => 'p');
--> ! an argument is given twice argument=`table`
CALL sys.compact('p', '', '', '', '', '', '', '', 'more');
--> ! compact takes 8 arguments
CALL sys.compact();
--> ! compact needs the argument table
CALL sys.compact('nope');
--> ! there is no such table
CALL sys.compact('t$files');
--> ! procedures work on tables
CALL sys.kompakt('t');
--> ! there is no such procedure .*did you mean compact
CALL compact('t');
--> ! sys
CALL sys.compact_database(including_databases => 'default', excluding_tables => 'p');
--> default.t, compacted
CALL sys.compact_database('nothing.*');
--> 
CALL sys.compact_database(including_tables => '(');
--> ! including_tables is no regular expression
-- tags
CALL sys.create_tag('default.t', 'one', 1);
--> Success
CALL sys.create_tag(table => 't', tag => 'two', snapshot => 2, time_retained => '1 d');
--> Success
CALL sys.create_tag(table => 't', tag => 'three', snapshot_id => cast(2 as bigint));
--> Success
CALL sys.create_tag('t', 'one');
--> ! one
CALL sys.create_tag('t', 'late', 99);
--> ! 99
CALL sys.create_tag(table => 't', tag => 'x', snapshot_id => 'abc');
--> ! the argument snapshot_id is an integer
CALL sys.create_tag(table => 't', tag => 'x', time_retained => 'long');
--> ! time_retained is a time span
CALL sys.create_tag(table => 't');
--> ! create_tag needs the argument tag
CALL sys.rename_tag('t', 'three', 'drei');
--> Success
CALL sys.replace_tag('t', 'drei', 1, '2 h');
--> Success
SELECT tag_name, snapshot_id FROM `t$tags` ORDER BY tag_name;
--> drei, 1 | one, 1 | two, 2
CALL sys.create_tag_from_timestamp('t', 'four', 9999999999999);
--> ! no snapshot was committed at or after
CALL sys.create_tag_from_watermark('t', 'four', 5);
--> ! no snapshot has reached the watermark
CALL sys.delete_tag('t', 'drei,two');
--> Success
CALL sys.expire_tags(table => 't', older_than => '2000-01-01 00:00:00');
--> 
CALL sys.expire_tags(table => 't', older_than => 'yesterday');
--> ! .
CALL sys.trigger_tag_automatic_creation('t');
--> Success
-- branches
CALL sys.create_branch('t', 'b1', 'one');
--> Success
CALL sys.create_branch(table => 't', branch => 'b1', ignoreIfExists => true);
--> Success
CALL sys.create_branch('t', 'b1');
--> ! b1
INSERT INTO `t$branch_b1` VALUES (7, 7);
--> 1
CALL sys.rename_branch('t', 'b1', 'b2');
--> Success
CALL sys.fast_forward('t', 'b2');
--> Success
SELECT * FROM t ORDER BY k;
--> 1, 1 | 7, 7
CALL sys.delete_branch('t', 'b2');
--> Success
CALL sys.delete_branch('t', 'b2');
--> ! b2
-- going back
INSERT INTO t VALUES (8, 8);
--> 1
CALL sys.rollback_to('t', 1);
--> 3, 1
CALL sys.rollback(table => 't', version => 'one');
--> 1, 1
CALL sys.rollback_to(table => 't', tag => 'one');
--> 1, 1
CALL sys.rollback_to('t', 'nope');
--> ! Tag 'nope' doesn't exist
CALL sys.rollback_to(table => 't', tag => 'one', snapshot => 1);
--> ! one of snapshot_id, tag and version is wanted
CALL sys.rollback_to_timestamp('t', 1000);
--> ! no snapshot earlier
CALL sys.rollback_to_watermark('t', 1000);
--> ! no snapshot has a watermark
SELECT * FROM t;
--> 1, 1
-- expiry
CALL sys.expire_snapshots(table => 'p', retain_max => 1, retain_min => 1, older_than => '2124-01-01 12:00:00', max_deletes => 1);
--> 1
CALL sys.expire_snapshots('p', 100);
--> 0
CALL sys.expire_snapshots('p', 'many');
--> ! the argument retain_max is an integer
CALL sys.expire_changelogs('t', true);
--> 0
CALL sys.expire_partitions(table => 'p', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd', timestamp_pattern => '$dt', expire_strategy => 'values-time');
--> 
CALL sys.drop_partition('p', 'dt=a;dt=b');
--> Success
SELECT k FROM p ORDER BY k;
--> 3 | 6
CALL sys.drop_partition(table => 'p');
--> ! drop_partition needs the argument partitions
-- consumers
CALL sys.reset_consumer('p', 'me', 2);
--> Success
CALL sys.reset_consumer(table => 'p', consumerId => 'you', nextSnapshotId => 3);
--> Success
SELECT * FROM `p$consumers` ORDER BY consumer_id;
--> me, 2 | you, 3
CALL sys.clear_consumers(table => 'p', includingConsumers => '.*', excludingConsumers => 'y.*');
--> Success
CALL sys.reset_consumer('p', 'you');
--> Success
CALL sys.reset_consumer('p', 'you');
--> ! there is no such consumer
CALL sys.clear_consumers('p', '(');
--> ! including_consumers is no regular expression
-- the rest
CALL sys.rewrite_file_index(table => 'p', where => 'dt = ''c''');
--> Success
CALL sys.remove_orphan_files('default.*');
--> 0, 0
CALL sys.remove_orphan_files(table => 't', dry_run => 'perhaps');
--> ! the argument dry_run is TRUE or FALSE
CALL sys.rescale(table => 't', bucket_num => 2);
--> Success
SELECT * FROM t;
--> 1, 1
CALL sys.repair('default.t');
--> ! .
CALL sys.refresh_object_table('t');
--> ! this is no object table
CALL sys.alter_column_default_value('t', 'n', '5');
--> Success
INSERT INTO t (k) VALUES (9);
--> 1
SELECT n FROM t WHERE k = 9;
--> 5
CALL sys.merge_into(target_table => 'default.t', target_alias => 'x', source_table => 'p', merge_condition => 'x.k = p.k', matched_upsert_setting => 'n = 0', not_matched_insert_values => 'p.k, 100');
--> 2 rows
CALL sys.merge_into(target_table => 't', source_table => 'p', merge_condition => 't.k = p.k', matched_delete_condition => 'p.k = 6', source_sqls => 'x');
--> ! source_sqls are not run
CALL sys.merge_into(target_table => 't', source_table => 'p', merge_condition => 't.k = p.k', matched_delete_condition => 'p.k = 6');
--> 1 rows
SELECT * FROM t ORDER BY k;
--> 1, 1 | 3, 100 | 9, 5
CALL sys.migrate_table('hive', 'x');
--> ! this procedure is not supported procedure=`sys.migrate_table`.*Hive
CALL sys.create_function('f');
--> ! this procedure is not supported.*no functions
CALL sys.compact_manifest('t');
--> ! this procedure is not supported.*merged by commits
CALL sys.analyze('t', '*');
--> Success
