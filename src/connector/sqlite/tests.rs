//! What the sinks leave in a database, over attempts that end anywhere.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use super::*;
use crate::id::{AttemptId, SubtaskIndex, VertexId};
use crate::operator::sink::{CommitError, Committed, Sink, TransactionalSink, WriteAheadSink};

fn table(folder: &Path) -> SqliteTable<u64> {
    SqliteTable {
        database: folder.join("out.db"),
        table: "output".to_owned(),
        columns: &["key", "value"],
        values: |number| {
            vec![SqlValue::Text(format!("k{}", number % 10)), SqlValue::Integer(*number as i64)]
        },
    }
}

fn place(attempt: u64) -> SinkPlace {
    let (subtask, attempt) = (SubtaskIndex::new(1), AttemptId::new(attempt));
    SinkPlace { subtask, parallelism: 2, attempt, shown: Vec::new() }
}

fn id(attempt: u64, sequence: u64) -> TransactionId {
    let (vertex, subtask) = (VertexId::new(3), SubtaskIndex::new(1));
    TransactionId { vertex, subtask, attempt: AttemptId::new(attempt), sequence }
}

fn values(folder: &Path, table: &str) -> Vec<i64> {
    let database = Connection::open(folder.join("out.db")).unwrap();
    let mut query = database.prepare(&format!("SELECT value FROM {table} ORDER BY rowid")).unwrap();
    query.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_table_with_a_key_is_no_place_for_every_row_and_one_without_none_for_upserts() {
    fn upserts(folder: &Path) -> SqliteTableSink<u64> {
        SqliteTableSink::new(table(folder), |number| vec![*number as u8 % 10])
    }
    let is_refused = |opened: Result<(), SinkError>| {
        let refused = opened.unwrap_err();
        let is_said = |text: &str| text.contains("out.db: another kind of sink has made it");
        assert!(matches!(&refused, SinkError::Damaged(text) if is_said(text)), "{refused}");
    };
    let folder = tempfile::tempdir().unwrap();
    SqliteTransactionalSink::new(table(folder.path())).open(&place(1)).unwrap();
    SqliteSink::new(table(folder.path())).open(&place(2)).unwrap();
    is_refused(upserts(folder.path()).open(&place(3)));
    let folder = tempfile::tempdir().unwrap();
    upserts(folder.path()).open(&place(1)).unwrap();
    is_refused(SqliteSink::new(table(folder.path())).open(&place(2)));
    is_refused(SqliteTransactionalSink::new(table(folder.path())).open(&place(2)));
    upserts(folder.path()).open(&place(2)).unwrap();
}

#[test]
fn a_database_that_lacks_what_was_shown_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = SqliteTransactionalSink::new(table(folder.path()));
    sink.open(&place(4)).unwrap();
    for sequence in 0..3 {
        sink.write(id(4, sequence), vec![sequence]).unwrap();
        sink.prepare(id(4, sequence)).unwrap();
    }
    sink.commit(id(4, 0)).unwrap();
    let shown = |sequence| SinkPlace { shown: vec![id(4, sequence)], ..place(5) };
    // It was shown later on: this is what was there when it was prepared.
    for sequence in [1, 2] {
        let refused = sink.clone().open(&shown(sequence)).unwrap_err();
        let is_said =
            |text: &str| text.contains("out.db") && text.contains("put the database back");
        assert!(matches!(&refused, SinkError::Damaged(text) if is_said(text)), "{refused}");
    }
    sink.write(id(4, 3), vec![3]).expect("no attempt has taken over");
    sink.commit(id(4, 1)).unwrap();
    for sequence in [0, 1] {
        sink.clone().open(&shown(sequence)).unwrap();
    }
}

#[test]
fn a_plain_row_is_there_at_once_and_an_upsert_replaces_that_of_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut plain = SqliteSink::new(table(folder.path()));
    plain.open(&place(1)).unwrap();
    plain.write(vec![12, 31]).unwrap();
    assert_eq!(values(folder.path(), "output"), [12, 31]);
    let folder = tempfile::tempdir().unwrap();
    let mut upserts = SqliteTableSink::new(table(folder.path()), |number| vec![*number as u8 % 10]);
    upserts.open(&place(1)).unwrap();
    upserts.write(vec![12, 31, 22]).unwrap();
    assert_eq!(values(folder.path(), "output"), [22, 31]);
}

#[test]
fn rule_064_a_later_attempt_commits_what_it_is_told_once_and_aborts_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = SqliteTransactionalSink::new(table(folder.path()));
    sink.open(&place(4)).unwrap();
    for sequence in 0..3 {
        sink.write(id(4, sequence), vec![sequence, sequence + 10]).unwrap();
        sink.prepare(id(4, sequence)).unwrap();
    }
    sink.commit(id(4, 0)).unwrap();
    assert_eq!(values(folder.path(), "output"), [0, 10], "only what is committed is visible");
    let mut later = sink.clone();
    later.open(&place(5)).unwrap();
    assert_eq!(later.commit(id(4, 0)), Ok(Committed::Before));
    assert_eq!(later.commit(id(4, 1)), Ok(Committed::Now));
    later.abort_dangling().unwrap();
    assert_eq!(values(folder.path(), "output"), [0, 10, 1, 11]);
    assert_eq!(values(folder.path(), "output_pending"), [] as [i64; 0]);
    let gone = later.commit(id(4, 2)).unwrap_err();
    assert!(matches!(&gone, CommitError::Lost(text) if text.contains("v3-1-4-2 are gone")));
}

#[test]
fn an_older_attempt_is_fenced() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = SqliteTransactionalSink::new(table(folder.path()));
    sink.open(&place(4)).unwrap();
    sink.write(id(4, 0), vec![1]).unwrap();
    let mut later = sink.clone();
    later.open(&place(5)).unwrap();
    later.abort_dangling().unwrap();
    for refusal in [sink.write(id(4, 0), vec![2]), sink.clone().open(&place(4))] {
        assert_eq!(refusal, Err(fenced()));
    }
    assert_eq!(sink.commit(id(4, 0)), Err(fenced().into()));
    assert_eq!(values(folder.path(), "output"), [] as [i64; 0]);
}

#[test]
fn rule_074_rows_and_their_mark_are_there_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = SqliteWriteAheadSink::new(table(folder.path()));
    sink.open(&place(4)).unwrap();
    sink.send(id(4, 0), vec![1, 2]).unwrap();
    let mut later = sink.clone();
    later.open(&place(5)).unwrap();
    assert_eq!([0, 1].map(|sequence| later.is_marked(id(4, sequence)).unwrap()), [true, false]);
    later.send(id(4, 0), vec![1, 2]).unwrap();
    later.send(id(4, 1), vec![3]).unwrap();
    assert_eq!(values(folder.path(), "output"), [1, 2, 3]);
}

#[test]
fn a_table_that_is_gone_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = SqliteSink::new(table(folder.path()));
    sink.open(&place(4)).unwrap();
    sink.write(vec![1]).unwrap();
    let database = Connection::open(folder.path().join("out.db")).unwrap();
    database.execute_batch("DROP TABLE output").unwrap();
    let error = sink.clone().open(&place(5)).unwrap_err();
    let is_said = |text: &str| text.contains("table output of ") && text.contains("it is gone");
    assert!(matches!(&error, SinkError::Damaged(text) if is_said(text)), "{error}");
}

#[test]
fn what_is_no_database_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.db");
    fs::write(&file, "this is a text, and a long one, of more than a hundred bytes. ".repeat(9))
        .unwrap();
    let text = check(&file).unwrap_err().to_string();
    assert!(text.contains("not a SQLite database"), "{text}");
    let text = check(&folder.path().join("none/out.db")).unwrap_err().to_string();
    assert!(text.contains("its folder has to be there"), "{text}");
    check(&folder.path().join("new.db")).unwrap();
}

#[test]
fn a_database_that_another_process_keeps_locked_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.db");
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let text = check_within(&file, Duration::from_millis(20)).unwrap_err().to_string();
    assert!(text.contains("out.db: another process has locked the database"), "{text}");
    other.execute_batch("ROLLBACK").unwrap();
    check_within(&file, Duration::from_millis(20)).unwrap();
}

#[test]
fn subtasks_that_open_a_new_database_at_once_wait_for_each_other() {
    for _ in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let together = Barrier::new(8);
        let open = &|subtask| {
            let mut sink = SqliteTransactionalSink::new(table(folder.path()));
            let place = SinkPlace { subtask: SubtaskIndex::new(subtask), ..place(1) };
            together.wait();
            sink.open(&place)
        };
        let opened: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || open(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    }
}
