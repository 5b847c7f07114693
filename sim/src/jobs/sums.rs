//! The jobs whose records bring a key and at most one number: rolling-sum, ad-billing, seen, max.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::dice::Dice;
use crate::jobs::lines::{Format, ReadsLines, integer};
use crate::jobs::row::{Entry, Mark};
use crate::jobs::running::Running;
use crate::jobs::{JobError, Setup};
use crate::reference::Reference;
use crate::reference::running::RunningReference;
use crate::workload::text;

/// The sum of a key's values. It is kept wider than the values: no input is long enough to overflow
/// it.
pub(crate) struct RollingSum;

/// The amount to bill to a campaign, as wide as a sum and for the same reason.
pub(crate) struct AdBilling;

/// Whether a line has been seen.
pub(crate) struct Seen;

/// The largest of a key's values.
pub(crate) struct Max;

impl ReadsLines for RollingSum {
    const FORMAT: Format = KEY_VALUE;
}

impl Running for RollingSum {
    type Given = i64;
    type Kept = i128;

    const NAME: &'static str = "rolling-sum";
    const ABOUT: &'static str = "sums up the integers of CSV rows key,value by key";

    fn parse(fields: &[&str]) -> Result<Entry<i64>, String> {
        parse_key_value(fields)
    }

    fn generate(dice: &mut Dice, records: usize) -> Vec<Entry<i64>> {
        text::numbers(dice, records)
    }

    fn text(record: &Entry<Self::Given>) -> String {
        record.to_string()
    }

    fn fold(so_far: Option<i128>, value: i64) -> i128 {
        so_far.unwrap_or(0) + i128::from(value)
    }

    fn reference(records: Arc<Vec<Entry<i64>>>, _: &Setup) -> Result<Box<dyn Reference>, JobError> {
        Ok(Box::new(RunningReference::of_sums(&records)))
    }
}

impl ReadsLines for AdBilling {
    const FORMAT: Format = Format::Ndjson;
}

impl Running for AdBilling {
    type Given = u64;
    type Kept = i128;

    const NAME: &'static str = "ad-billing";
    const ABOUT: &'static str = "bills the clicks of NDJSON lines to their campaigns";

    fn parse(fields: &[&str]) -> Result<Entry<u64>, String> {
        let click: Click = parse_object(fields[0])?;
        let price = u64::try_from(click.price_micros).map_err(|_| {
            format!("price_micros {} is not between 0 and {}", click.price_micros, u64::MAX)
        })?;
        Ok(Entry::new(click.campaign, price))
    }

    fn generate(dice: &mut Dice, records: usize) -> Vec<Entry<u64>> {
        text::prices(dice, records)
    }

    fn text(record: &Entry<Self::Given>) -> String {
        record.to_string()
    }

    fn fold(so_far: Option<i128>, price: u64) -> i128 {
        so_far.unwrap_or(0) + i128::from(price)
    }

    fn reference(records: Arc<Vec<Entry<u64>>>, _: &Setup) -> Result<Box<dyn Reference>, JobError> {
        Ok(Box::new(RunningReference::of_sums(&records)))
    }
}

impl ReadsLines for Seen {
    const FORMAT: Format = Format::Text;
}

impl Running for Seen {
    type Given = ();
    type Kept = Mark;

    const NAME: &'static str = "seen";
    const ABOUT: &'static str =
        "says of each line that it was seen; right even if lines are repeated";
    const IDEMPOTENT: bool = true;
    const ALIKE: bool = true;

    fn parse(fields: &[&str]) -> Result<Entry<()>, String> {
        Ok(Entry::new(fields[0], ()))
    }

    fn generate(dice: &mut Dice, records: usize) -> Vec<Entry<()>> {
        text::repeated_lines(dice, records)
    }

    fn fold(_so_far: Option<Mark>, (): ()) -> Mark {
        Mark
    }

    fn reference(records: Arc<Vec<Entry<()>>>, _: &Setup) -> Result<Box<dyn Reference>, JobError> {
        Ok(Box::new(RunningReference::of_marks(&records)))
    }
}

impl ReadsLines for Max {
    const FORMAT: Format = KEY_VALUE;
}

impl Running for Max {
    type Given = i64;
    type Kept = i64;

    const NAME: &'static str = "max";
    const ABOUT: &'static str =
        "keeps the largest integer of CSV rows key,value by key; right even if rows are repeated";
    const IDEMPOTENT: bool = true;

    fn parse(fields: &[&str]) -> Result<Entry<i64>, String> {
        parse_key_value(fields)
    }

    fn generate(dice: &mut Dice, records: usize) -> Vec<Entry<i64>> {
        text::numbers(dice, records)
    }

    fn text(record: &Entry<Self::Given>) -> String {
        record.to_string()
    }

    fn fold(so_far: Option<i64>, value: i64) -> i64 {
        so_far.map_or(value, |largest| largest.max(value))
    }

    fn reference(records: Arc<Vec<Entry<i64>>>, _: &Setup) -> Result<Box<dyn Reference>, JobError> {
        Ok(Box::new(RunningReference::of_maxima(&records)))
    }
}

fn parse_key_value(fields: &[&str]) -> Result<Entry<i64>, String> {
    Ok(Entry::new(fields[0], integer("value", fields[1])?))
}

/// A click as it is read. Every click bills, whatever its id: but it must have one.
#[derive(Deserialize)]
struct Click {
    campaign: String,
    price_micros: i128,
    #[serde(rename = "event_id")]
    _event_id: serde_json::Value,
}

/// Reads a JSON object. Without the look at its first character an array of all fields would do.
fn parse_object<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    let start = line.find(|character: char| !character.is_whitespace()).unwrap_or(0);
    if !line[start..].starts_with('{') {
        return Err(format!("column {}: a JSON object is expected here", start + 1));
    }
    serde_json::from_str(line).map_err(|error| {
        // It counts lines within the text, which is one.
        error.to_string().replace(" at line 1 column ", " at column ")
    })
}

const KEY_VALUE: Format = Format::Csv(&["key", "value"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_or_refused_with_its_reason() {
        assert_eq!(RollingSum::parse(&["a", "-3"]), Ok(Entry::new("a", -3)));
        let refused = |value| Max::parse(&["a", value]).unwrap_err();
        assert_eq!(refused("1.5"), "value '1.5' is not an integer in range");
        assert_eq!(
            refused("9223372036854775808"),
            "value '9223372036854775808' is not an integer in range"
        );
    }

    #[test]
    fn a_click_needs_a_campaign_an_id_and_a_price_that_is_not_negative() {
        let parse = |line| AdBilling::parse(&[line]);
        assert_eq!(
            parse(r#"{"campaign":"c","price_micros":18446744073709551615,"event_id":"e"}"#),
            Ok(Entry::new("c", u64::MAX))
        );
        assert!(
            parse(r#"{"campaign":"c","price_micros":-1,"event_id":1}"#)
                .unwrap_err()
                .starts_with("price_micros -1 is not between 0 and")
        );
        assert_eq!(
            parse(r#" ["c",1,"e"]"#),
            Err("column 2: a JSON object is expected here".into())
        );
        assert_eq!(parse(r#"{"campaign":c}"#), Err("expected value at column 13".into()));
        for bad in [
            r#"{"campaign":"c","price_micros":1}"#,
            r#"{"campaign":"c","price_micros":1.5,"event_id":1}"#,
            r#"{"campaign":7,"price_micros":1,"event_id":1}"#,
            "not json",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
