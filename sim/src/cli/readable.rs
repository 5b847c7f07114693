//! State in the portable format as people and scripts read it, without the types that wrote it.

use ciborium::Value;
use cofferdam::runtime::Savepoint;
use cofferdam::state::codec::Format;
use cofferdam::state::key_group::KeyGroup;
use cofferdam::state::snapshot::{Bytes, OperatorState, TaskState};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value as Json, json};

/// One piece of state. Keyed state has a key and a value; all else has a kind.
#[derive(Default, Serialize)]
pub(crate) struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_group: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Json>,
    /// What is peculiar to the kind.
    #[serde(flatten)]
    more: Map<String, Json>,
}

impl Row {
    /// The row in the columns of a table: operator, what it is, group or task, key, value.
    pub(crate) fn cells(&self) -> [String; 5] {
        let place = match (self.key_group, self.task) {
            (Some(group), _) => KeyGroup::new(group).to_string(),
            (None, Some(task)) => format!("t{task}"),
            (None, None) => String::new(),
        };
        let text = |json: &Option<Json>| json.as_ref().map(Json::to_string).unwrap_or_default();
        let value = match self.kind {
            None => text(&self.value),
            Some(_) => Json::Object(self.more.clone()).to_string(),
        };
        let what = self.kind.or(self.state).unwrap_or_default().to_owned();
        [self.operator.clone().unwrap_or_default(), what, place, text(&self.key), value]
    }

    fn of_kind(kind: &'static str, more: Json) -> Self {
        let more = if let Json::Object(more) = more { more } else { Map::new() };
        Self { kind: Some(kind), more, ..Self::default() }
    }
}

/// All that a savepoint holds.
pub(crate) fn rows(savepoint: &Savepoint) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let graph = savepoint.metadata.shape.graph().map_err(|error| error.to_string())?;
    for state in &savepoint.states {
        for operator in &state.operators {
            rows.extend(of_operator(operator, state)?);
        }
        let uids = &graph.vertex_of(state.task).uids;
        rows.extend(of_source(state, uids.first().map(|uid| uid.to_string())));
        rows.extend(of_sink(state, uids.last().map(|uid| uid.to_string()))?);
        rows.extend(of_channels(state)?);
    }
    for (source, pool) in savepoint.metadata.pools.iter().enumerate() {
        rows.extend(pool.unassigned.iter().map(|assignment| {
            let more = json!({"source": source, "split": assignment.split.get()});
            Row::of_kind("unassigned-split", more)
        }));
    }
    Ok(rows)
}

fn of_operator(operator: &OperatorState, state: &TaskState) -> Result<Vec<Row>, String> {
    let uid = || Some(operator.uid.clone());
    let mut rows = Vec::new();
    for (group, entries) in groups(&operator.keyed) {
        for entry in decoded::<Vec<Value>>(entries)? {
            let [key, value] = pair(entry)?;
            rows.push(Row {
                operator: uid(),
                state: Some("value"),
                key_group: Some(group.get()),
                key: Some(json_of(&key)),
                value: Some(json_of(&value)),
                ..Row::default()
            });
        }
    }
    let timers = [("timer", &operator.timers), ("processing-timer", &operator.processing_timers)];
    for (kind, of_kind) in timers {
        for (group, timers) in groups(of_kind) {
            for timer in decoded::<Vec<Value>>(timers)? {
                let [time, key] = pair(timer)?;
                let more = json!({"time_ms": json_of(&time), "of": json_of(&key)});
                let row = Row::of_kind(kind, more);
                rows.push(Row { operator: uid(), key_group: Some(group.get()), ..row });
            }
        }
    }
    let task = Some(state.task.get());
    if let Some(watermark) = operator.watermark {
        let row = Row::of_kind("watermark", json!({"time": watermark.to_string()}));
        rows.push(Row { operator: uid(), task, ..row });
    }
    for list in &operator.lists {
        for element in &list.elements {
            let element = json_of(&decoded(element)?);
            let row = Row::of_kind("list", json!({"list": list.name, "element": element}));
            rows.push(Row { operator: uid(), task, ..row });
        }
    }
    Ok(rows)
}

fn of_source(state: &TaskState, uid: Option<String>) -> Vec<Row> {
    let splits = state.source.iter().flat_map(|source| &source.splits);
    let row = |split: &cofferdam::state::snapshot::SplitState| {
        let (number, records, lost) = (split.split.get(), split.records, split.lost);
        let mut more = json!({"split": number, "records": records, "lost": lost});
        if let Some(watermark) = split.watermark {
            more["watermark"] = json!(watermark.to_string());
        }
        let row = Row::of_kind("split", more);
        Row { operator: uid.clone(), task: Some(state.task.get()), ..row }
    };
    splits.map(row).collect()
}

fn of_sink(state: &TaskState, uid: Option<String>) -> Result<Vec<Row>, String> {
    let task = Some(state.task.get());
    let mut rows = Vec::new();
    for pending in &state.transactions {
        let (id, checkpoint) = (pending.transaction.to_string(), pending.checkpoint.get());
        let more = json!({"transaction": id, "checkpoint": checkpoint});
        let row = Row::of_kind("pending-transaction", more);
        rows.push(Row { operator: uid.clone(), task, ..row });
    }
    for logged in &state.log {
        let checkpoint = logged.pending.checkpoint.get();
        for bytes in &logged.rows {
            let row = json_of(&decoded(bytes)?);
            let row = Row::of_kind("unsent-row", json!({"checkpoint": checkpoint, "row": row}));
            rows.push(Row { operator: uid.clone(), task, ..row });
        }
    }
    Ok(rows)
}

fn of_channels(state: &TaskState) -> Result<Vec<Row>, String> {
    let inputs = state.in_flight.inputs.iter().map(|(at, of)| ("input", at.get(), of));
    let outputs = state.in_flight.outputs.iter().map(|(at, of)| ("output", at.get(), of));
    let mut rows = Vec::new();
    for (side, channel, batches) in inputs.chain(outputs) {
        for batch in batches {
            for record in decoded::<Vec<Value>>(batch)? {
                let record = json_of(&record);
                let more = json!({"side": side, "channel": channel, "record": record});
                let row = Row::of_kind("in-flight", more);
                rows.push(Row { task: Some(state.task.get()), ..row });
            }
        }
    }
    Ok(rows)
}

fn groups(groups: &Option<Vec<(KeyGroup, Bytes)>>) -> impl Iterator<Item = (KeyGroup, &Bytes)> {
    groups.iter().flatten().map(|(group, bytes)| (*group, bytes))
}

pub(crate) fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    Format::Portable.decode(bytes).map_err(|error| error.to_string())
}

pub(crate) fn pair(value: Value) -> Result<[Value; 2], String> {
    let array = value.into_array().map_err(|_| "an entry is not a pair".to_owned())?;
    array.try_into().map_err(|_| "an entry is not a pair".to_owned())
}

/// What JSON has no form for is told as well as it can be: bytes in hexadecimal, a number of more
/// than 64 bits as the text of its digits, and a map whose keys are not texts as a list of pairs.
/// [`value_like`] reads it back.
pub(crate) fn json_of(value: &Value) -> Json {
    match value {
        Value::Bool(value) => Json::Bool(*value),
        Value::Text(text) => Json::String(text.clone()),
        Value::Integer(_) | Value::Tag(BIG_POSITIVE | BIG_NEGATIVE, _) => match number_of(value) {
            Some(number) => {
                let small = i64::try_from(number).map(Number::from);
                let small = small.or_else(|_| u64::try_from(number).map(Number::from));
                small.map_or_else(|_| Json::String(number.to_string()), Json::Number)
            }
            None => Json::Null,
        },
        Value::Float(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Bytes(bytes) => {
            Json::String(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
        }
        Value::Array(values) => Json::Array(values.iter().map(json_of).collect()),
        Value::Map(entries) if entries.iter().all(|(key, _)| key.is_text()) => {
            let entry = |(key, value): &(Value, Value)| {
                (key.as_text().unwrap_or_default().to_owned(), json_of(value))
            };
            Json::Object(entries.iter().map(entry).collect())
        }
        Value::Map(entries) => {
            let pair = |(key, value): &(Value, Value)| json!([json_of(key), json_of(value)]);
            Json::Array(entries.iter().map(pair).collect())
        }
        Value::Tag(_, value) => json_of(value),
        Value::Null | _ => Json::Null,
    }
}

/// The value that `json` tells of, in the form of one that stands in the same place: what JSON has
/// no form for can not be told otherwise.
pub(crate) fn value_like(json: &Json, like: Option<&Value>) -> Value {
    match (json, like) {
        (Json::Array(pairs), Some(Value::Map(entries)))
            if !pairs.is_empty() || entries.iter().any(|(key, _)| !key.is_text()) =>
        {
            let like = entries.first();
            let entry = |pair: &Json| match pair.as_array().map(Vec::as_slice) {
                Some([key, value]) => Some((
                    value_like(key, like.map(|(key, _)| key)),
                    value_like(value, like.map(|(_, value)| value)),
                )),
                Some(_) | None => None,
            };
            let entries: Option<Vec<_>> = pairs.iter().map(entry).collect();
            entries.map_or_else(|| plain(json), Value::Map)
        }
        (Json::Object(fields), Some(Value::Map(entries))) => {
            let like = |name: &str| {
                let same = entries.iter().find(|(key, _)| key.as_text() == Some(name));
                same.or(entries.first()).map(|(_, value)| value)
            };
            let field = |(name, value): (&String, &Json)| {
                (Value::Text(name.clone()), value_like(value, like(name)))
            };
            Value::Map(fields.iter().map(field).collect())
        }
        (Json::Array(elements), Some(Value::Array(like))) => {
            let is_tuple = elements.len() == like.len();
            let like = |place: usize| if is_tuple { like.get(place) } else { like.first() };
            let elements = elements.iter().enumerate();
            Value::Array(elements.map(|(place, of)| value_like(of, like(place))).collect())
        }
        (Json::String(text), Some(Value::Bytes(_))) => {
            bytes_of(text).unwrap_or_else(|| plain(json))
        }
        (Json::String(text), Some(like)) if number_of(like).is_some() => {
            let number = text.parse::<i128>().ok();
            let value = number.and_then(|number| Value::serialized(&number).ok());
            value.unwrap_or_else(|| plain(json))
        }
        _ => plain(json),
    }
}

fn plain(json: &Json) -> Value {
    Value::serialized(json).unwrap_or(Value::Null)
}

fn number_of(value: &Value) -> Option<i128> {
    matches!(value, Value::Integer(_) | Value::Tag(BIG_POSITIVE | BIG_NEGATIVE, _))
        .then(|| value.deserialized().ok())
        .flatten()
}

fn bytes_of(hexadecimal: &str) -> Option<Value> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = digits.map(|pair| byte(pair).filter(|_| pair.len() == 2));
    bytes.collect::<Option<Vec<u8>>>().map(Value::Bytes)
}

/// The tags of CBOR for whole numbers of more than 64 bits.
const BIG_POSITIVE: u64 = 2;
const BIG_NEGATIVE: u64 = 3;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn value(of: impl Serialize) -> Value {
        Value::serialized(&of).unwrap()
    }

    #[test]
    fn what_is_shown_is_read_back_as_what_it_was() {
        let nested = BTreeMap::from([((1, "a"), Some(BTreeMap::from([(7_u64, i128::MAX)])))]);
        for (of, shown) in [
            (value((i128::from(u64::MAX) + 1, -5)), json!(["18446744073709551616", -5])),
            (value(i128::MIN), json!(i128::MIN.to_string())),
            (value(nested), json!([[[1, "a"], [[7, i128::MAX.to_string()]]]])),
            (
                value(BTreeMap::from([("b", Some(true)), ("c", None)])),
                json!({"b": true, "c": null}),
            ),
            (Value::Bytes(vec![0, 255]), json!("00ff")),
            (value(BTreeMap::<u64, u64>::new()), json!({})),
            (value("18446744073709551616"), json!("18446744073709551616")),
        ] {
            assert_eq!(json_of(&of), shown);
            assert_eq!(value_like(&shown, Some(&of)), of, "{shown}");
        }
    }

    #[test]
    fn another_value_takes_the_form_of_the_one_before() {
        let before = value(BTreeMap::from([(3_u64, vec![1_i128])]));
        let big = i128::from(i64::MIN) - 1;
        let json = json!([[4, [big.to_string(), 2]], [5, []]]);
        let after = BTreeMap::from([(4_u64, vec![big, 2]), (5, vec![])]);
        assert_eq!(value_like(&json, Some(&before)), value(after));
        let wrong = json!(["no pair"]);
        assert_eq!(value_like(&wrong, Some(&before)), value(["no pair"]), "a restore refuses it");
        assert_eq!(value_like(&json!("0f0"), Some(&Value::Bytes(vec![]))), value("0f0"));
    }
}
