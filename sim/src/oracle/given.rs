//! What the state behind a sink has given, where that is not what the whole input gives: for each
//! key of a table, and for rows that timers fire. Both tell whether records are missing in a row,
//! or count there too often, by values alone.

use std::collections::BTreeMap;

use super::c10_output::differs;
use super::delivery::count_rows;
use super::values::readable;
use super::{Anomaly, SinkFacts};

/// What the state behind one key has given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Every row that the state behind the visible one gives the key, in order.
    pub rows: Vec<Vec<u8>>,
    /// The last of them, if each record had been taken in once.
    pub once: Option<Vec<u8>>,
}

/// What the state behind a sink has given that shows nothing but rows that timers fired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// The rows that the last state owes.
    pub due: BTreeMap<Vec<u8>, u64>,
    /// How many of each row states give of which no two have taken in the same record.
    pub most: BTreeMap<Vec<u8>, u64>,
}

/// What is wrong with a table, and how, beside what the whole input gives.
pub(super) fn of_table(sink: &SinkFacts<'_>) -> Vec<(Anomaly, String)> {
    let rows = sink.rows.iter().filter_map(|row| Some((row.key?, row.bytes)));
    let table: BTreeMap<&[u8], &[u8]> = rows.collect();
    let missing = sink.expected_table.keys().filter(|key| !table.contains_key(key.as_slice()));
    let missing = missing.filter(|key| sink.given.contains_key(*key));
    let mut found: Vec<(Anomaly, String)> = missing
        .map(|key| {
            (Anomaly::Lost, format!("sink '{}' has no row for key {}", sink.uid, readable(key)))
        })
        .collect();
    for (key, row) in table {
        let due = sink.expected_table.get(key);
        let Some(given) = sink.given.get(key).filter(|_| due.is_none_or(|due| due != row)) else {
            continue;
        };
        let shows =
            format!("sink '{}' shows {} for key {}", sink.uid, readable(row), readable(key));
        let last = given.rows.last().map(Vec::as_slice);
        if last != Some(row) {
            found.push(match given.rows.iter().any(|other| other == row) {
                true => {
                    (Anomaly::Lost, format!("{shows}, and records that came later are not in it"))
                }
                false => (Anomaly::Unexpected, format!("{shows}, which nothing gives")),
            });
            continue;
        }
        if given.once.as_ref() != due {
            found.push((Anomaly::Lost, format!("{shows}, and not all of its records are in it")));
        }
        if given.once.as_deref() != last {
            found.push((Anomaly::Duplicated, format!("{shows}, and records are in it twice")));
        }
    }
    found
}

/// What is wrong with rows that timers fired, and how.
pub(super) fn of_fired(sink: &SinkFacts<'_>, fired: &Fired) -> Vec<(Anomaly, String)> {
    let visible = count_rows(sink.rows.iter().map(|row| row.bytes));
    let often = |row: &[u8]| visible.get(row).copied().unwrap_or_default();
    let lost = fired.due.iter().filter(|(row, due)| often(row) < **due);
    let lost = lost.map(|(row, due)| (Anomaly::Lost, differs(sink, row, often(row), *due)));
    let others = visible.iter().filter_map(|(row, often)| {
        let most = fired.most.get(*row).copied().unwrap_or_default();
        let anomaly = if most == 0 { Anomaly::Unexpected } else { Anomaly::Duplicated };
        (*often > most).then(|| (anomaly, differs(sink, row, *often, most)))
    });
    lost.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use cofferdam::guarantee::{Level, SinkContract};
    use cofferdam::trace::Origin;

    use super::super::testing::*;
    use super::super::{Facts, RowFact, Seen, judge};
    use super::*;

    fn row(bytes: &'static [u8]) -> RowFact<'static> {
        let origin = Origin { record: None, path: 7 };
        RowFact { origin, attempt: att(1), bytes, key: Some(b"k") }
    }

    fn given(rows: &[&[u8]], once: Option<&[u8]>) -> BTreeMap<Vec<u8>, Given> {
        let rows = rows.iter().map(|row| row.to_vec()).collect();
        BTreeMap::from([(b"k".to_vec(), Given { rows, once: once.map(<[u8]>::to_vec) })])
    }

    #[test]
    fn a_row_of_a_table_tells_what_is_missing_in_it_and_what_counts_twice() {
        let expected_table = BTreeMap::from([(b"k".to_vec(), b"3".to_vec())]);
        let (lost, twice) = (Anomaly::Lost, Anomaly::Duplicated);
        for (shown, given, expected) in [
            (Some(b"3"), BTreeMap::new(), vec![]),
            (Some(b"2"), BTreeMap::new(), vec![]),
            (None, given(&[b"3"], Some(b"3")), vec![lost]),
            (Some(b"2"), given(&[b"1", b"2"], Some(b"2")), vec![lost]),
            (Some(b"1"), given(&[b"1", b"2", b"3"], Some(b"3")), vec![lost]),
            (Some(b"4"), given(&[b"1", b"2", b"3", b"4"], Some(b"3")), vec![twice]),
            (Some(b"2"), given(&[b"1", b"2"], Some(b"1")), vec![lost, twice]),
            (Some(b"9"), given(&[b"1", b"2"], Some(b"2")), vec![Anomaly::Unexpected]),
        ] {
            let rows: Vec<RowFact<'_>> = shown.into_iter().map(|bytes| row(bytes)).collect();
            let sink = sink(SinkContract::Idempotent, &rows);
            let sink = SinkFacts { expected_table: &expected_table, given: &given, ..sink };
            let found: Vec<Anomaly> =
                of_table(&sink).into_iter().map(|(anomaly, _)| anomaly).collect();
            assert_eq!(found, expected, "{shown:?} of {given:?}");
        }
    }

    #[test]
    fn a_fired_row_is_lost_if_the_state_owes_it_and_twice_if_no_states_that_share_nothing_give_it()
    {
        let rows = |rows: &[(&[u8], u64)]| -> BTreeMap<Vec<u8>, u64> {
            rows.iter().map(|(row, count)| (row.to_vec(), *count)).collect()
        };
        let fired = Fired { due: rows(&[(b"a", 1), (b"b", 1)]), most: rows(&[(b"a", 1)]) };
        let found = |shown: &[&'static [u8]]| {
            let shown: Vec<RowFact<'_>> = shown.iter().map(|bytes| row(bytes)).collect();
            let found = of_fired(&sink(SinkContract::Plain, &shown), &fired);
            found.into_iter().map(|(anomaly, _)| anomaly).collect::<Vec<Anomaly>>()
        };
        assert_eq!(found(&[b"a"]), [Anomaly::Lost]);
        assert_eq!(found(&[b"a", b"a"]), [Anomaly::Lost, Anomaly::Duplicated]);
        assert_eq!(found(&[b"a", b"c"]), [Anomaly::Lost, Anomaly::Unexpected]);
    }

    #[test]
    fn a_table_without_a_record_is_at_most_once_under_every_claim() {
        let rows = [row(b"2")];
        let expected_table = BTreeMap::from([(b"k".to_vec(), b"3".to_vec())]);
        let given = given(&[b"1", b"2"], Some(b"2"));
        let sinks = [SinkFacts {
            expected_table: &expected_table,
            given: &given,
            ..sink(SinkContract::Idempotent, &rows)
        }];
        for claim in Level::ALL {
            let facts = Facts { sinks: &sinks, output_claim: Some(*claim), ..facts(&[]) };
            let judgement = judge(&facts);
            let seen = judgement.levels.unwrap().output;
            assert_eq!(seen, Some(Seen::Only(Level::AtMostOnce)));
            let is_broken = judgement.violations().next().is_some();
            assert_eq!(is_broken, !claim.may_lose(), "{claim}");
        }
    }
}
