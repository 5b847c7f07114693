//! What people and scripts see: JSON rows and tables on standard output, all else on standard
//! error.

use std::io::{self, IsTerminal, Write};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};

/// The flags of every command.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ConsoleArgs {
    /// What standard output is for
    #[arg(long, global = true, value_enum, default_value_t = Format::Human, display_order = 900)]
    format: Format,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, display_order = 900)]
    color: Color,
    /// Say nothing but results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 900)]
    quiet: bool,
    /// Explain what happens
    #[arg(short, long, global = true, display_order = 900)]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables and sentences for people
    #[default]
    Human,
    /// Rows of JSON for scripts, a summary last
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

/// Where a command writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    args: ConsoleArgs,
    /// For standard output.
    pub(crate) paint: Paint,
    paint_errors: Paint,
}

impl Console {
    pub(crate) fn new(args: &ConsoleArgs) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let paint = |is_terminal: bool| match args.color {
            Color::Auto => Paint(is_terminal && !no_color),
            Color::Always => Paint(true),
            Color::Never => Paint(false),
        };
        Self {
            paint: paint(io::stdout().is_terminal()),
            paint_errors: paint(io::stderr().is_terminal()),
            args: *args,
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.args.format == Format::Json
    }

    /// A result as a line of JSON.
    pub(crate) fn row(&self, row: &impl Serialize) {
        let text = serde_json::to_string(row).expect("rows have texts for keys");
        print(&text);
    }

    /// A result for people.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        print(text.as_ref());
    }

    /// Something that is good to know, on standard error.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.args.quiet {
            complain(text.as_ref());
        }
    }

    /// Something for those who want to know more, on standard error.
    pub(crate) fn explain(&self, text: impl AsRef<str>) {
        if self.args.verbose {
            complain(&self.paint_errors.dim(text.as_ref()));
        }
    }

    /// A failure: the sentence, and the command to paste as the last line.
    pub(crate) fn fail(&self, failure: &Failure) {
        let head = self.paint_errors.bad("error:");
        complain(&format!("{head} {}\n{}", failure.text, failure.command));
    }

    /// A bar towards `steps`, shown on a terminal only.
    pub(crate) fn bar(&self, steps: u64) -> ProgressBar {
        self.progress(ProgressBar::new(steps), "{bar:32.cyan/dim} {pos}/{len} {msg}")
    }

    /// How far a campaign over so many seeds, those of all rows together, is.
    pub(crate) fn campaign(&self, seeds: u64) -> CampaignProgress<'_> {
        let bar = self.bar(seeds);
        CampaignProgress {
            console: self,
            bar,
            seeds,
            begun: Instant::now(),
            told: AtomicU64::new(0),
        }
    }

    /// A line that says what is going on, shown on a terminal only.
    pub(crate) fn spinner(&self) -> ProgressBar {
        self.progress(ProgressBar::new_spinner(), "{spinner:.cyan} {elapsed} {msg}")
    }

    fn progress(&self, bar: ProgressBar, template: &str) -> ProgressBar {
        if self.args.quiet || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(template).expect("a template of our own");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

/// How far many runs are: a bar on a terminal, a line now and then elsewhere.
pub(crate) struct CampaignProgress<'a> {
    console: &'a Console,
    bar: ProgressBar,
    seeds: u64,
    begun: Instant,
    /// How often a line has been due.
    told: AtomicU64,
}

impl CampaignProgress<'_> {
    /// So many seeds are done.
    pub(crate) fn tell(&self, done: u64) {
        self.bar.set_position(done);
        let elapsed = self.begun.elapsed();
        self.bar.set_message(format!("{:.0} seeds/s", done as f64 / elapsed.as_secs_f64()));
        let due = elapsed.as_secs() / LINE_EVERY_SECONDS;
        if self.bar.is_hidden() && self.told.fetch_max(due, Ordering::Relaxed) < due {
            self.console.note(format!("{} of {} runs", grouped(done), grouped(self.seeds)));
        }
    }
}

impl Drop for CampaignProgress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Writes a line to standard output. A reader that has gone away wanted no more: the work goes on,
/// since its exit code and its files are still wanted.
fn print(text: &str) {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("error: standard output: {error}\n{}", own_command_line()));
            process::exit(Exit::Wrong as i32);
        }
        Ok(()) | Err(_) => {}
    }
}

/// Writes a line to standard error. If nobody can read it there is nobody left to tell, and what is
/// being done is not to end for that.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Colours, if they are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn plain(self, text: &str) -> String {
        text.to_owned()
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A table with aligned columns.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

/// How a text is painted.
pub(crate) type Painted = fn(Paint, &str) -> String;

/// A cell of a table.
struct Cell {
    width: usize,
    painted: String,
}

impl Table {
    /// A table under these column names.
    pub(crate) fn under(paint: Paint, columns: &[&str]) -> Self {
        let mut table = Self::default();
        table.row(paint, columns.iter().map(|name| (*name, Paint::dim as Painted)));
        table
    }

    /// Adds a row: each text with how it is painted.
    pub(crate) fn row<'a>(
        &mut self,
        paint: Paint,
        cells: impl IntoIterator<Item = (&'a str, Painted)>,
    ) {
        let cells = cells.into_iter().map(|(text, painted)| Cell {
            width: text.chars().count(),
            painted: painted(paint, text),
        });
        self.rows.push(cells.collect());
    }

    /// The lines of the table.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        self.rows.iter().map(move |row| {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&cell.painted);
                line.extend(std::iter::repeat_n(' ', width - cell.width + 2));
            }
            line.trim_end().to_owned()
        })
    }
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds for JSON, to the millisecond.
pub(crate) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Milliseconds for JSON, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The command line of this process, to paste.
pub(crate) fn own_command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    command_line(words)
}

/// A command line of cofferdam, to paste.
pub(crate) fn command_line(words: impl IntoIterator<Item = String>) -> String {
    let quoted = words.into_iter().map(|word| quoted(&word));
    std::iter::once("cofferdam".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// How often progress is told where there is no terminal.
const LINE_EVERY_SECONDS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_whatever_its_colours() {
        for paint in [Paint(false), Paint(true)] {
            let mut table = Table::under(paint, &["JOB", "N"]);
            table.row(paint, [("wordcount", Paint::good as Painted)]);
            table.row(paint, [("é", Paint::bad as Painted), ("12", Paint::bold)]);
            let lines: Vec<String> = table.lines().map(|line| without_colours(&line)).collect();
            assert_eq!(lines, ["JOB        N", "wordcount", "é          12"]);
        }
    }

    fn without_colours(line: &str) -> String {
        let mut parts = line.split('\x1b');
        let first = parts.next().unwrap().to_owned();
        let text = parts.fold(first, |text, part| text + part.split_once('m').unwrap().1);
        text.trim_end().to_owned()
    }

    #[test]
    fn words_are_quoted_only_where_a_shell_needs_it() {
        let words = ["run", "my file", "it's", "", "a/b-c.d"].map(str::to_owned);
        assert_eq!(command_line(words), r"cofferdam run 'my file' 'it'\''s' '' a/b-c.d");
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
