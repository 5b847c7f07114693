//! What a line means.

use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::element::Record;

/// Makes records of lines. A closure `Fn(u64, &str) -> Result<Option<T>, String>` is one: it gets
/// the line's number, from 0, and the line without its end.
pub trait LineParser: Clone + Send + 'static {
    /// The records.
    type Record: Record;

    /// Whether the first line of each file says how to read the others.
    const HAS_HEADER: bool = false;

    /// A file is opened whose first line is `header`.
    ///
    /// # Errors
    /// What is wrong with it.
    fn begin(&mut self, _header: &str) -> Result<(), String> {
        Ok(())
    }

    /// Makes a record of a line, or none if it holds none.
    ///
    /// # Errors
    /// What is wrong with the line, without file and number: the source names them.
    fn parse(&mut self, line: u64, text: &str) -> Result<Option<Self::Record>, String>;
}

impl<T, F> LineParser for F
where
    T: Record,
    F: Fn(u64, &str) -> Result<Option<T>, String> + Clone + Send + 'static,
{
    type Record = T;

    fn parse(&mut self, line: u64, text: &str) -> Result<Option<T>, String> {
        self(line, text)
    }
}

/// Rows of CSV under a header line; the columns asked for are found by name. Fields may be quoted,
/// but hold no line ends: a file must be cut on line bounds. Blank lines are skipped.
#[derive(Clone)]
pub struct CsvRows<const N: usize, F> {
    columns: [Arc<str>; N],
    parse: F,
    /// Where each column stands, and how many fields the header has.
    places: [usize; N],
    fields: usize,
}

impl<const N: usize, F> CsvRows<N, F> {
    /// Calls `parse` with the fields of these columns, in this order.
    pub fn new<T>(columns: [&str; N], parse: F) -> Self
    where
        F: Fn([&str; N]) -> Result<T, String> + Clone + Send + 'static,
    {
        Self { columns: columns.map(Into::into), parse, places: [0; N], fields: 0 }
    }
}

impl<const N: usize, T, F> LineParser for CsvRows<N, F>
where
    T: Record,
    F: Fn([&str; N]) -> Result<T, String> + Clone + Send + 'static,
{
    type Record = T;

    const HAS_HEADER: bool = true;

    fn begin(&mut self, header: &str) -> Result<(), String> {
        let names = fields_of(header)?;
        self.fields = names.len();
        refuse_duplicates(&names)?;
        for (column, place) in self.columns.iter().zip(&mut self.places) {
            let found = names.iter().position(|name| name.trim() == &**column);
            *place = found.ok_or_else(|| format!("the header has no column '{column}'"))?;
        }
        Ok(())
    }

    fn parse(&mut self, line: u64, text: &str) -> Result<Option<T>, String> {
        if line == 0 || text.is_empty() {
            return Ok(None);
        }
        let quoted;
        let fields: Vec<&str> = if text.contains('"') {
            quoted = fields_of(text)?;
            quoted.iter().map(String::as_str).collect()
        } else {
            text.split(',').collect()
        };
        let (found, wanted) = (fields.len(), self.fields);
        if found != wanted {
            let column = found.min(wanted) + 1;
            return Err(format!("column {column}: {found} fields where the header has {wanted}"));
        }
        (self.parse)(self.places.map(|place| fields[place])).map(Some)
    }
}

/// The fields of one row, by the rules of CSV: a quoted one may hold commas and doubled quotes.
fn fields_of(text: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = text;
    loop {
        let column = fields.len() + 1;
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let found = split_quoted(quoted);
                found.ok_or_else(|| format!("column {column}: its quote is not closed"))?
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        rest = match behind.strip_prefix(',') {
            Some(next) => next,
            None if behind.is_empty() => return Ok(fields),
            None => {
                return Err(format!("column {column}: something stands behind its closing quote"));
            }
        };
    }
}

/// What stands before the closing quote, and what behind it.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let (mut field, mut rest) = (String::new(), text);
    loop {
        let (before, behind) = rest.split_once('"')?;
        field.push_str(before);
        match behind.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                rest = more;
            }
            None => return Some((field, behind)),
        }
    }
}

/// A column that is named twice could be read from either place.
fn refuse_duplicates(names: &[String]) -> Result<(), String> {
    for (position, name) in names.iter().enumerate() {
        if let Some(first) = names[..position].iter().position(|other| other.trim() == name.trim())
        {
            let (first, second) = (first + 1, position + 1);
            return Err(format!("column {second}: it has the name of column {first}, '{name}'"));
        }
    }
    Ok(())
}

/// A JSON value on each line. Blank lines are skipped.
pub struct JsonLines<T>(PhantomData<fn() -> T>);

impl<T> JsonLines<T> {
    /// Reads values of type `T`.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<T> Default for JsonLines<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T> Clone for JsonLines<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T: Record + DeserializeOwned> LineParser for JsonLines<T> {
    type Record = T;

    fn parse(&mut self, _line: u64, text: &str) -> Result<Option<T>, String> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let value = serde_json::from_str(text);
        let value = value.map(Some);
        value.map_err(|error: serde_json::Error| {
            // It counts lines within the text, which is one.
            let text = error.to_string().replace(" at line 1 column ", " at column ");
            format!("not the expected JSON: {text}")
        })
    }
}
