//! The page: all of a comparison in one file that needs no other and nothing of the network.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use cofferdam::guarantee::Guarantee;
use serde::Serialize;

use super::Summary;
use super::plot::{Axis, Line, Point, Shape, escaped, lines, plane};
use super::row::Row;
use super::table::{notes, problems, sentences};
use crate::cli::exit::Failure;
use crate::cli::output::{Console, grouped};

/// What stands beside the page, for scripts.
#[derive(Serialize)]
struct Whole<'a> {
    summary: &'a Summary<'a>,
    rows: &'a [Row],
}

/// Writes the page and its data into a folder, which is made if it is not there.
pub(super) fn write(
    folder: &Path,
    rows: &[Row],
    summary: &Summary<'_>,
    console: &Console,
) -> Result<(), Failure> {
    let failed = |error| Failure::input(format!("--out {}: {error}", folder.display()));
    let whole = serde_json::to_vec_pretty(&Whole { summary, rows });
    let whole = whole.expect("rows have texts for keys");
    let page = folder.join("compare.html");
    let written = fs::create_dir_all(folder)
        .and_then(|()| fs::write(folder.join("compare.json"), whole))
        .and_then(|()| fs::write(&page, html(rows, summary)));
    written.map_err(failed)?;
    console.note(format!("the page is {}", page.display()));
    Ok(())
}

fn html(rows: &[Row], summary: &Summary<'_>) -> String {
    let settings = summary.settings;
    let job = escaped(&settings.job);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>What each guarantee costs: {job}</title>\n<style>{STYLE}</style></head>\n<body>\n\
         <h1>What each guarantee costs, and what it buys</h1>\n"
    );
    let _ = writeln!(
        page,
        "<p class=\"facts\">Job <b>{job}</b> over {}; parallelism {}; a checkpoint each {} ms; {} \
         rounds; latency and kills at {} records a second.<br>{}; cofferdam {}</p>",
        escaped(&settings.input.to_string()),
        settings.parallelism,
        settings.checkpoint_interval_ms,
        summary.repeats,
        grouped(summary.rate_records_per_s),
        escaped(&summary.machine),
        escaped(&summary.build)
    );
    page += "<ul>";
    for text in sentences(rows, settings.checkpoint_interval_ms) {
        let _ = write!(page, "<li>{}</li>", escaped(&text));
    }
    page += "</ul>\n";
    tell_problems(&mut page, rows);
    page += "<p class=\"key\">";
    for guarantee in Guarantee::ALL {
        let _ = write!(page, "<span class=\"{}\">{guarantee}</span> ", class(*guarantee));
    }
    page += "</p>\n<main>\n";
    for (head, about, svg) in plots(rows) {
        let _ =
            writeln!(page, "<figure><h2>{head}</h2>{svg}<figcaption>{about}</figcaption></figure>");
    }
    page += "</main>\n";
    page += &table(rows);
    page + "</body></html>\n"
}

fn tell_problems(page: &mut String, rows: &[Row]) {
    for text in notes(rows) {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escaped(&text));
    }
    for text in problems(rows) {
        let _ = writeln!(page, "<p class=\"problem\">{}</p>", escaped(&text));
    }
}

/// Each plot with its head and what it shows.
fn plots(rows: &[Row]) -> [(&'static str, &'static str, String); 6] {
    [
        (
            "Throughput",
            "Records a second as fast as the input can be read, and the ratio to no guarantee: the \
             median over all rounds, and the slowest and the fastest.",
            throughput(rows),
        ),
        (
            "Latency until rows can be seen",
            "From when a record is due, not from when it was read, until its row can be seen: the \
             dots are 50, 90, 99, 99.9 % of all rows and the last one; each step of the scale is \
             ten times the one before.",
            latency(rows),
        ),
        (
            "Loss against latency",
            "Which part of all rows was lost when the job was killed, against the median latency. \
             The numbers are those of the table; what stands below the line of 0 % is at 0 % too.",
            against_latency(rows, "lost", |[lost, _]| lost),
        ),
        (
            "Repetition against latency",
            "Which part of all rows was seen a second time when the job was killed, against the \
             median latency.",
            against_latency(rows, "seen twice", |[_, twice]| twice),
        ),
        (
            "Recovery",
            "From a kill until a row can be seen of a record that was due after it: the median, \
             the shortest and the longest. At the end of the line: records that were read again, \
             over all kills.",
            recovery(rows),
        ),
        (
            "Checkpoints",
            "From the trigger of a checkpoint until it is complete, on average, while the input is \
             read as fast as it can be; and how much one stores.",
            checkpoints(rows),
        ),
    ]
}

fn throughput(rows: &[Row]) -> String {
    let line = |(name, row): (String, &Row)| Line {
        name,
        class: class_of(row),
        marks: row.records_per_s.into_iter().collect(),
        spread: row.min_records_per_s.zip(row.max_records_per_s),
        text: match (row.records_per_s, row.relative) {
            (Some(rate), Some(ratio)) => format!("{} \u{b7} {ratio:.2}", grouped(rate as u64)),
            _ => "failed".to_owned(),
        },
    };
    let axis = Axis::linear(rows.iter().filter_map(|row| row.max_records_per_s), thousands);
    let all: Vec<Line> = named(rows).map(line).collect();
    lines("Records a second by mode", &all, axis, Shape::Bar)
}

fn latency(rows: &[Row]) -> String {
    let line = |(name, row): (String, &Row)| Line {
        name,
        class: class_of(row),
        marks: row
            .latency_ms
            .map_or(Vec::new(), |of| vec![of.p50, of.p90, of.p99, of.p999, of.max]),
        spread: None,
        text: row.latency_ms.map_or("not measured".to_owned(), |of| {
            format!("{} \u{b7} {}", time(of.p50), time(of.p99))
        }),
    };
    let marks = rows.iter().filter_map(|row| row.latency_ms).flat_map(|of| [of.p50, of.max]);
    let all: Vec<Line> = named(rows).map(line).collect();
    lines("Latency by mode", &all, Axis::log(marks, time), Shape::Dots)
}

fn against_latency(rows: &[Row], what: &str, part: fn([f64; 2]) -> f64) -> String {
    let point = |(number, row): (usize, &Row)| {
        let (found, share) = (row.latency_ms?, part(row.shares()?));
        let (time, share_text) = (time(found.p50), percent(share));
        Some(Point {
            mark: number.to_string(),
            class: class_of(row),
            x: found.p50,
            y: share,
            title: format!("{}: {share_text} {what}, half seen after {time}", row.contender),
        })
    };
    let points: Vec<Point> = (1..).zip(rows).filter_map(point).collect();
    let x_axis = Axis::log(points.iter().map(|point| point.x), time);
    // So that the greatest does not lie on the edge.
    let y_axis = Axis::linear(points.iter().map(|point| point.y * 1.1), percent);
    plane(&format!("Rows {what} against latency"), &points, x_axis, y_axis)
}

fn recovery(rows: &[Row]) -> String {
    let line = |(name, row): (String, &Row)| Line {
        name,
        class: class_of(row),
        marks: row.recovery_ms.into_iter().collect(),
        spread: row.min_recovery_ms.zip(row.max_recovery_ms),
        text: match (row.recovery_ms, row.replayed) {
            (Some(ms), Some(records)) => format!("{} \u{b7} {} again", time(ms), grouped(records)),
            _ => "not measured".to_owned(),
        },
    };
    let axis = Axis::linear(rows.iter().filter_map(|row| row.max_recovery_ms), time);
    let all: Vec<Line> = named(rows).map(line).collect();
    lines("Recovery by mode", &all, axis, Shape::Bar)
}

fn checkpoints(rows: &[Row]) -> String {
    let line = |(name, row): (String, &Row)| Line {
        name,
        class: class_of(row),
        marks: row.checkpoint.mean_ms.into_iter().collect(),
        spread: None,
        text: match (row.checkpoint.mean_ms, row.checkpoint.bytes) {
            (Some(ms), Some(bytes)) => {
                format!("{} \u{d7} {} \u{b7} {}", row.checkpoint.count, time(ms), size(bytes))
            }
            _ => "none".to_owned(),
        },
    };
    let axis = Axis::linear(rows.iter().filter_map(|row| row.checkpoint.mean_ms), time);
    let all: Vec<Line> = named(rows).map(line).collect();
    lines("Time of a checkpoint by mode", &all, axis, Shape::Bar)
}

/// The rows with their numbers and names.
fn named(rows: &[Row]) -> impl Iterator<Item = (String, &Row)> {
    (1..).zip(rows).map(|(number, row)| {
        let state = match row.contender.state.is_external() {
            true => format!(", {}", row.contender.state),
            false => String::new(),
        };
        let mode = row.contender.mode;
        (format!("{number} {}, {}{state}", mode.mechanism, mode.sink), row)
    })
}

fn table(rows: &[Row]) -> String {
    let mut text = "<div class=\"table\"><table><thead><tr>".to_owned();
    for column in COLUMNS {
        let _ = write!(text, "<th>{column}</th>");
    }
    text += "</tr></thead><tbody>\n";
    let or_none = |text: Option<String>| text.unwrap_or("\u{2013}".to_owned());
    let latency = |row: &Row, of: fn(&super::latency::Percentiles) -> f64| {
        or_none(row.latency_ms.as_ref().map(|found| time(of(found))))
    };
    for (number, row) in (1..).zip(rows) {
        let mode = row.contender.mode;
        let spread = row.relative_min.zip(row.relative_max);
        let cells = [
            format!("{number}"),
            mode.guarantee.to_string(),
            mode.mechanism.to_string(),
            mode.sink.to_string(),
            row.contender.state.to_string(),
            or_none(row.records_per_s.map(|rate| grouped(rate as u64))),
            or_none(row.relative.map(|ratio| format!("{ratio:.2}"))),
            or_none(spread.map(|(min, max)| format!("{min:.2} to {max:.2}"))),
            latency(row, |found| found.p50),
            latency(row, |found| found.p90),
            latency(row, |found| found.p99),
            latency(row, |found| found.p999),
            latency(row, |found| found.max),
            or_none(row.checkpoint.mean_ms.map(time)),
            or_none(row.checkpoint.bytes.map(size)),
            or_none(row.recovery_ms.map(time)),
            or_none(row.replayed.map(grouped)),
            or_none(row.lost.map(grouped)),
            or_none(row.duplicated.map(grouped)),
            row.state_verdict.painted().0.to_owned(),
            row.output_verdict.painted().0.to_owned(),
        ];
        let _ = write!(text, "<tr class=\"{}\">", class_of(row));
        cells.iter().for_each(|cell| text += &format!("<td>{cell}</td>"));
        text += "</tr>\n";
    }
    text + "</tbody></table></div>\n"
}

const COLUMNS: [&str; 21] = [
    "",
    "guarantee",
    "mechanism",
    "sink",
    "state",
    "records/s",
    "ratio",
    "from, to",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "checkpoint",
    "size",
    "recovery",
    "read again",
    "rows lost",
    "rows twice",
    "state claim",
    "output claim",
];

fn class_of(row: &Row) -> &'static str {
    class(row.contender.mode.guarantee)
}

fn class(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::AtMostOnce => "most",
        Guarantee::AtLeastOnce => "least",
        Guarantee::ExactlyOnce => "exactly",
    }
}

fn thousands(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{}M", rounded(number / 1e6)),
        number if number >= 1e3 => format!("{}k", rounded(number / 1e3)),
        number => rounded(number),
    }
}

/// Milliseconds.
fn time(ms: f64) -> String {
    match ms {
        ms if ms >= 1000.0 => format!("{} s", rounded(ms / 1000.0)),
        ms => format!("{} ms", rounded(ms)),
    }
}

fn percent(part: f64) -> String {
    format!("{} %", rounded(part * 100.0))
}

fn size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e6 => format!("{} MB", rounded(bytes / 1e6)),
        bytes if bytes >= 1e3 => format!("{} kB", rounded(bytes / 1e3)),
        bytes => format!("{bytes} B"),
    }
}

/// Three digits, as far as there are some.
fn rounded(number: f64) -> String {
    let digits = match number.abs() {
        number if number >= 100.0 => 0,
        number if number >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{number:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

const STYLE: &str = include_str!("page.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.0, 0.056, 1.2345, 23.45, 234.5].map(rounded),
            ["0", "0.06", "1.23", "23.4", "234"]
        );
        assert_eq!(
            (time(1234.0), time(2.5), size(1_500)),
            ("1.23 s".into(), "2.5 ms".into(), "1.5 kB".into())
        );
        assert_eq!((thousands(200_000.0), percent(0.125)), ("200k".into(), "12.5 %".into()));
    }
}
