//! The rows for people: two tables, and in sentences what each guarantee costs and buys.

use std::collections::BTreeMap;

use cofferdam::guarantee::{Guarantee, Mechanism, SinkContract};

use super::Summary;
use super::baseline::Changes;
use super::row::Row;
use crate::cli::output::{Console, Paint, Painted, Table, grouped};
use crate::cli::torture::Verdict;

pub(super) fn tell(rows: &[Row], summary: &Summary<'_>, console: &Console) {
    let settings = summary.settings;
    let paint = console.paint;
    console.say(format!(
        "{}  parallelism {}, a checkpoint each {} ms, {} rounds; latency and kills at {} records a \
         second",
        paint.bold(&settings.job),
        settings.parallelism,
        settings.checkpoint_interval_ms,
        summary.repeats,
        grouped(summary.rate_records_per_s)
    ));
    console.say("");
    speed(rows, paint).lines().for_each(|line| console.say(line));
    console.say("");
    kills(rows, paint).lines().for_each(|line| console.say(line));
    console.say("");
    sentences(rows, settings.checkpoint_interval_ms).iter().for_each(|text| console.say(text));
    notes(rows).iter().for_each(|text| console.say(text));
    problems(rows).for_each(|text| console.say(paint.bad(&text)));
    if let Some(changes) = summary.changes {
        tell_changes(changes, console);
    }
}

fn speed(rows: &[Row], paint: Paint) -> Table {
    let columns = [
        "GUARANTEE",
        "MECHANISM",
        "SINK",
        "STATE",
        "RECORDS/S",
        "RELATIVE",
        "FROM",
        "TO",
        "LATENCY MS: P50",
        "P99",
        "MAX",
        "CHECKPOINT: MS",
        "BYTES",
    ];
    let mut table = Table::under(paint, &columns);
    for row in rows {
        let latency = |of: fn(&super::latency::Percentiles) -> f64| {
            row.latency_ms.as_ref().map_or(NOTHING.to_owned(), |found| tenths(of(found)))
        };
        let ratio = |number: Option<f64>| number.map_or(NOTHING.to_owned(), |n| format!("{n:.2}"));
        let texts = [
            row.contender.mode.guarantee.to_string(),
            row.contender.mode.mechanism.to_string(),
            row.contender.mode.sink.to_string(),
            row.contender.state.to_string(),
            row.records_per_s.map_or(NOTHING.to_owned(), |rate| grouped(rate as u64)),
            ratio(row.relative),
            ratio(row.relative_min),
            ratio(row.relative_max),
            latency(|found| found.p50),
            latency(|found| found.p99),
            latency(|found| found.max),
            row.checkpoint.mean_ms.map_or(NOTHING.to_owned(), tenths),
            row.checkpoint.bytes.map_or(NOTHING.to_owned(), grouped),
        ];
        table.row(paint, texts.iter().map(|text| (text.as_str(), Paint::plain as Painted)));
    }
    table
}

fn kills(rows: &[Row], paint: Paint) -> Table {
    let columns = [
        "GUARANTEE",
        "MECHANISM",
        "SINK",
        "STATE",
        "KILLS",
        "RECOVERY MS",
        "RECORDS AGAIN",
        "ROWS LOST",
        "ROWS TWICE",
        "CLAIM: STATE",
        "OUTPUT",
    ];
    let mut table = Table::under(paint, &columns);
    for row in rows {
        let count = |number: Option<u64>| number.map_or(NOTHING.to_owned(), grouped);
        let plain = [
            row.contender.mode.guarantee.to_string(),
            row.contender.mode.mechanism.to_string(),
            row.contender.mode.sink.to_string(),
            row.contender.state.to_string(),
            row.kills.to_string(),
            row.recovery_ms.map_or(NOTHING.to_owned(), tenths),
            count(row.replayed),
            count(row.lost),
            count(row.duplicated),
        ];
        let verdicts = [row.state_verdict, row.output_verdict].map(Verdict::painted);
        let plain = plain.iter().map(|text| (text.as_str(), Paint::plain as Painted));
        table.row(paint, plain.chain(verdicts));
    }
    table
}

/// What could not be measured, and why: once for all rows that have the same reason.
pub(super) fn notes(rows: &[Row]) -> Vec<String> {
    let mut of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in rows {
        let name = || row.contender.to_string();
        row.notes.iter().for_each(|note| of.entry(note).or_default().push(name()));
    }
    let text = |(note, names): (&str, Vec<String>)| match names.len() == rows.len() {
        true => format!("every mode: {note}"),
        false => format!("{}: {note}", names.join("; ")),
    };
    of.into_iter().map(text).collect()
}

/// What failed or was wrong, and in which mode.
pub(super) fn problems(rows: &[Row]) -> impl Iterator<Item = String> {
    let of_row = |row: &Row| {
        let name = row.contender.to_string();
        row.problems.iter().map(|text| format!("{name}: {text}")).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row)
}

/// What each guarantee costs and buys, by the row of its default mechanism if that was measured.
pub(super) fn sentences(rows: &[Row], interval_ms: f64) -> Vec<String> {
    let of = |guarantee: Guarantee| {
        let own = |row: &&Row| row.contender.mode.guarantee == guarantee && !row.has_failed();
        let is_default = |row: &&Row| row.contender.mode.mechanism == guarantee.default_mechanism();
        rows.iter().filter(own).find(is_default).or_else(|| rows.iter().find(own))
    };
    let found = Guarantee::ALL.iter().filter_map(|guarantee| of(*guarantee));
    found.map(|row| sentence(row, interval_ms)).collect()
}

fn sentence(row: &Row, interval_ms: f64) -> String {
    let mode = row.contender.mode;
    let mut text = format!("{} ({}, {})", mode.guarantee, mode.mechanism, mode.sink);
    text += &match (mode.mechanism, row.relative) {
        (Mechanism::None, _) => " is what the others are compared with: it stores positions \
                                 before it hands records out, and nothing else"
            .to_owned(),
        (_, Some(relative)) if relative < 1.0 => {
            format!(" costs {:.0} % of the throughput", (1.0 - relative) * 100.0)
        }
        (_, Some(_)) => " costs no throughput that shows".to_owned(),
        (_, None) => String::new(),
    };
    if let Some(found) = &row.latency_ms {
        let waits = match mode.sink {
            SinkContract::TwoPhase | SinkContract::WriteAhead => {
                format!(", since rows wait for a checkpoint, one each {interval_ms} ms")
            }
            SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => String::new(),
        };
        let (p50, p99) = (tenths(found.p50), tenths(found.p99));
        text += &format!("; rows can be seen after {p50} ms, 99 % within {p99} ms{waits}");
    }
    if let (Some(lost), Some(twice)) = (row.lost, row.duplicated) {
        let count = |count: u64, of: &str| match count {
            0 => format!("no row was {of}"),
            count => format!("{} of {} rows were {of}", grouped(count), grouped(row.rows_expected)),
        };
        let (lost, twice) = (count(lost, "lost"), count(twice, "seen twice"));
        text += &format!("; killed, {lost} and {twice}");
    }
    text + "."
}

fn tell_changes(changes: &Changes, console: &Console) {
    let paint = console.paint;
    console.say("");
    console.say(format!("against {}:", changes.against));
    let columns =
        ["GUARANTEE", "MECHANISM", "SINK", "STATE", "RELATIVE BEFORE", "NOW", "CHANGE", ""];
    let mut table = Table::under(paint, &columns);
    for change in &changes.of_modes {
        let mode = change.contender.mode;
        let (verdict, painted): (_, Painted) = match change.is_slower {
            true => ("slower", Paint::bad),
            false => ("", Paint::plain),
        };
        let texts = [
            mode.guarantee.to_string(),
            mode.mechanism.to_string(),
            mode.sink.to_string(),
            change.contender.state.to_string(),
            format!("{:.3}", change.before),
            format!("{:.3}", change.now),
            format!("{:+.1} %", change.change * 100.0),
        ];
        let plain = texts.iter().map(|text| (text.as_str(), Paint::plain as Painted));
        table.row(paint, plain.chain([(verdict, painted)]));
    }
    table.lines().for_each(|line| console.say(line));
    console.say(format!(
        "A mode is slower if its ratio to no guarantee has fallen by more than {:.0} %; how fast \
         the machine is does not count.",
        changes.regression * 100.0
    ));
}

fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

const NOTHING: &str = "-";
