//! From lines of text to records: the formats that the jobs read, and the fields that they name.

use std::cmp::Ordering;
use std::fmt;

use crate::dice::{Dice, Purpose};
use crate::jobs::{CaseData, JobError};

/// What the lines of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Each line is one field.
    Text,
    /// A header names the columns; these are the fields, in this order.
    Csv(&'static [&'static str]),
    /// Each line that is not blank is one field: a JSON value.
    Ndjson,
}

/// A job that reads lines.
pub(crate) trait ReadsLines {
    /// What its lines are.
    const FORMAT: Format;
}

/// Where the fields of a line stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// None: the line is the only field.
    columns: Option<Columns>,
    skips_blank: bool,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Columns {
    /// By field: its column.
    of_fields: Vec<usize>,
    /// How many columns there are.
    count: usize,
}

impl Format {
    /// The numbers of those of `lines` that hold a record, in order: what rows call its offset.
    pub fn record_lines(self, lines: &[String]) -> Vec<u64> {
        let skips_blank = match self {
            Self::Text => false,
            Self::Csv(_) | Self::Ndjson => true,
        };
        let body = (0..).zip(lines).skip(usize::from(self.has_header()));
        let records = body.filter(|(_, line)| !(skips_blank && line.trim().is_empty()));
        records.map(|(number, _)| number).collect()
    }

    /// Whether the first line of a file names columns.
    pub(crate) const fn has_header(self) -> bool {
        matches!(self, Self::Csv(_))
    }

    /// The layout of a file whose first line is `header`.
    pub(crate) fn layout(self, header: &str) -> Result<Layout, String> {
        match self {
            Self::Text => Ok(Layout { columns: None, skips_blank: false }),
            Self::Ndjson => Ok(Layout { columns: None, skips_blank: true }),
            Self::Csv(wanted) => {
                Ok(Layout { columns: Some(Columns::find(wanted, header)?), skips_blank: true })
            }
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.pad("text lines"),
            Self::Csv(columns) => write!(f, "CSV rows {}", columns.join(",")),
            Self::Ndjson => f.pad("NDJSON"),
        }
    }
}

impl Layout {
    /// Parses one line; `None` for a line without a record.
    pub(crate) fn parse<T>(
        &self,
        line: &str,
        parse: impl FnOnce(&[&str]) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        if self.skips_blank && line.trim().is_empty() {
            return Ok(None);
        }
        let Some(columns) = &self.columns else { return parse(&[line]).map(Some) };
        let found = split_csv(line)?;
        let count = columns.count;
        match found.len().cmp(&count) {
            Ordering::Less => {
                let column = found.len() + 1;
                return Err(format!("column {column}: it is missing, the header names {count}"));
            }
            Ordering::Greater => {
                return Err(format!("column {}: the header names only {count}", count + 1));
            }
            Ordering::Equal => {}
        }
        let fields: Vec<&str> =
            columns.of_fields.iter().map(|column| found[*column].trim()).collect();
        parse(&fields).map(Some)
    }
}

impl Columns {
    /// Finds the columns that are `wanted`. No name may stand twice: nobody could say which of the
    /// two is meant.
    fn find(wanted: &[&str], header: &str) -> Result<Self, String> {
        let names = split_csv(header)?;
        let place_of = |name: &str| names.iter().position(|found| found.trim() == name);
        for (column, name) in names.iter().enumerate() {
            if let Some(first) = place_of(name.trim()).filter(|first| *first < column) {
                let (first, second) = (first + 1, column + 1);
                return Err(format!("column {second}: it is named '{name}', like column {first}"));
            }
        }
        let find = |name: &&str| {
            place_of(name).ok_or_else(|| {
                let wanted = wanted.join(",");
                format!("the header has no column '{name}': it must name {wanted}")
            })
        };
        let of_fields = wanted.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { of_fields, count: names.len() })
    }
}

/// The records of `data.records` lines, taken in turn; `parse` is given the position of a record
/// and its fields. If there are just as many lines they are taken as they stand.
pub(crate) fn cycle_lines<T>(
    lines: &[String],
    format: Format,
    data: &CaseData,
    parse: impl Fn(u64, &[&str]) -> Result<T, String>,
) -> Result<Vec<T>, JobError> {
    let at = |line: usize, reason| JobError::Input(format!("line {}: {reason}", line + 1));
    let header = lines.first().map_or("", String::as_str);
    let layout = format.layout(header).map_err(|reason| at(0, reason))?;
    let first = usize::from(format.has_header());
    let body = lines.len() - first;
    if body == 0 {
        return Ok(Vec::new());
    }
    let start = match body == data.records {
        true => 0,
        false => Dice::new(data.seed, Purpose::Workload).below(body as u64) as usize,
    };
    let mut records = Vec::with_capacity(data.records);
    for step in 0..data.records {
        let line = first + (start + step) % body;
        let position = records.len() as u64;
        let record = layout.parse(&lines[line], |fields| parse(position, fields));
        records.extend(record.map_err(|reason| at(line, reason))?);
    }
    Ok(records)
}

/// Reads an integer field.
pub(crate) fn integer<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} '{text}' is not an integer in range"))
}

/// The fields of a CSV line; quoted ones may hold commas and doubled quotes.
fn split_csv(line: &str) -> Result<Vec<String>, String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is always a field");
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted => quoted = false,
            '"' if field.trim().is_empty() => {
                field.clear();
                quoted = true;
            }
            ',' if !quoted => fields.push(String::new()),
            other => field.push(other),
        }
    }
    if quoted { Err("a quote is not closed".to_owned()) } else { Ok(fields) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY_VALUE: Format = Format::Csv(&["key", "value"]);

    fn read(format: Format, lines: &[&str]) -> Result<Vec<(u64, Vec<String>)>, String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let header = usize::from(matches!(format, Format::Csv(_)));
        let data = CaseData { seed: 1, records: lines.len() - header, lines: None };
        let owned = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect();
        cycle_lines(&lines, format, &data, |position, fields| Ok((position, owned(fields))))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_found_by_name_and_quotes_are_understood() {
        let rows = read(KEY_VALUE, &["value,x,key", "1,,a", "", "2,y,\"b, \"\"c\"\"\""]).unwrap();
        let fields: Vec<_> = rows.iter().map(|(_, fields)| fields.join("|")).collect();
        assert_eq!(fields, ["a|1", "b, \"c\"|2"]);
        assert_eq!(rows[1].0, 1, "a blank line is no record");
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = |lines: &[&str]| read(KEY_VALUE, lines).unwrap_err();
        assert_eq!(
            error(&["key,valve", "a,1"]),
            "line 1: the header has no column 'value': it must name key,value"
        );
        assert_eq!(
            error(&["key,value", "a,1", "b"]),
            "line 3: column 2: it is missing, the header names 2"
        );
        assert_eq!(error(&["key,value", "", "a,1,"]), "line 3: column 3: the header names only 2");
        assert_eq!(
            error(&["key,x,value, key", "a,1,2,3"]),
            "line 1: column 4: it is named ' key', like column 1"
        );
        assert_eq!(error(&["key,value", "\"a,1"]), "line 2: a quote is not closed");
    }

    #[test]
    fn text_keeps_empty_lines_and_more_records_than_lines_go_round() {
        assert_eq!(read(Format::Text, &["a", "", "b"]).unwrap().len(), 3);
        let lines = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let data = CaseData { seed: 9, records: 7, lines: None };
        let take = |_: u64, fields: &[&str]| Ok(fields[0].to_owned());
        let taken = cycle_lines(&lines, Format::Text, &data, take).unwrap();
        assert_eq!(taken.len(), 7);
        assert_eq!(taken[0], taken[3]);
    }
}
