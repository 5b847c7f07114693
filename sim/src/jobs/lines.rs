//! From lines of text to records: the formats that the jobs read, and the fields that they name.

use crate::dice::{Dice, Purpose};
use crate::jobs::{CaseData, JobError};

/// What the lines of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
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
    /// By field: its column. None: the line is the only field.
    columns: Option<Vec<usize>>,
    skips_blank: bool,
}

impl Format {
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
                let names = split_csv(header)?;
                let find = |name: &&str| {
                    names.iter().position(|found| found.trim() == *name).ok_or_else(|| {
                        let wanted = wanted.join(",");
                        format!("the header has no column '{name}': it must name {wanted}")
                    })
                };
                let columns = wanted.iter().map(find).collect::<Result<_, _>>()?;
                Ok(Layout { columns: Some(columns), skips_blank: true })
            }
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
        let field = |column: &usize| {
            found.get(*column).map(|field| field.trim()).ok_or_else(|| {
                format!("{} fields, the header promises at least {}", found.len(), column + 1)
            })
        };
        let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        parse(&fields).map(Some)
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
            "line 3: 1 fields, the header promises at least 2"
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
