//! Changing one key of a savepoint, without the types that wrote it.

use ciborium::Value;
use cofferdam::graph::PhysicalGraph;
use cofferdam::runtime::Savepoint;
use cofferdam::state::codec::Format;
use cofferdam::state::hash::KeyHash;
use cofferdam::state::key_group::{KeyGroup, KeyGroupCount, subtask_of};
use cofferdam::state::snapshot::{Bytes, OperatorState};
use serde_json::Value as Json;

use crate::cli::readable::{decoded, json_of, pair, value_like};

/// Sets the value of a key, which is added if it is not there, or removes the key with its timers.
pub(crate) fn edit(
    savepoint: &mut Savepoint,
    uid: &str,
    key: &Json,
    value: Option<&Json>,
) -> Result<(), String> {
    let mut found = 0;
    for operator in operators(savepoint, uid) {
        found += change(operator, key, value)?;
    }
    match value {
        _ if found > 0 => Ok(()),
        Some(value) => add(savepoint, uid, key, value),
        None => Err(format!("it has no key {key}: `state show` lists what is there")),
    }
}

fn operators<'a>(
    savepoint: &'a mut Savepoint,
    uid: &'a str,
) -> impl Iterator<Item = &'a mut OperatorState> {
    let operators = savepoint.states.iter_mut().flat_map(|state| &mut state.operators);
    operators.filter(move |operator| operator.uid == uid)
}

/// How often the key was there.
fn change(operator: &mut OperatorState, key: &Json, value: Option<&Json>) -> Result<usize, String> {
    let mut found = 0;
    for (_, bytes) in operator.keyed.iter_mut().flatten() {
        let entries = entries(bytes)?;
        if !entries.iter().any(|[of, _]| json_of(of) == *key) {
            continue;
        }
        let changed = entries.into_iter().filter_map(|[of, old]| {
            if json_of(&of) != *key {
                return Some([of, old]);
            }
            found += 1;
            value.map(|new| [of, value_like(new, Some(&old))])
        });
        *bytes = encoded(changed);
    }
    if value.is_none() {
        let timers = [&mut operator.timers, &mut operator.processing_timers];
        for (_, bytes) in timers.into_iter().flatten().flatten() {
            let left = entries(bytes)?.into_iter().filter(|[_, of]| json_of(of) != *key);
            *bytes = encoded(left);
        }
    }
    Ok(found)
}

/// Adds a key where the job looks for it: in the group of its hash, in the part of the subtask that
/// has the group.
fn add(savepoint: &mut Savepoint, uid: &str, key: &Json, value: &Json) -> Result<(), String> {
    let graph = savepoint.metadata.shape.graph().map_err(|error| error.to_string())?;
    let max = KeyGroupCount::new(savepoint.metadata.shape.key_groups);
    let max = max.ok_or("its number of key groups is not one that there can be")?;
    let (mut known, mut like) = (Vec::new(), [None, None]);
    for operator in operators(savepoint, uid) {
        for (group, bytes) in operator.keyed.iter().flatten() {
            for [of, value] in entries(bytes)? {
                known.push((*group, json_of(&of)));
                like = [Some(of), Some(value)];
            }
        }
    }
    let group = group_of(key, &known, max)?;
    let has_place = |task| {
        let (vertex, subtask) = graph.place_of(task);
        subtask == subtask_of(group, parallelism(&graph, vertex.index()), max)
    };
    let states = savepoint.states.iter_mut().filter(|state| has_place(state.task));
    let mut operators = states.flat_map(|state| &mut state.operators);
    let operator = operators.find(|operator| operator.uid == uid && operator.keyed.is_some());
    let groups = operator.and_then(|operator| operator.keyed.as_mut());
    let groups = groups.ok_or("it has no state by key: `state show` lists what is there")?;
    let [like_key, like_value] = &like;
    let entry = [value_like(key, like_key.as_ref()), value_like(value, like_value.as_ref())];
    match groups.binary_search_by_key(&group, |(group, _)| *group) {
        Ok(place) => {
            let bytes = &mut groups[place].1;
            *bytes = encoded(entries(bytes)?.into_iter().chain([entry]));
        }
        Err(place) => groups.insert(place, (group, encoded([entry]))),
    }
    Ok(())
}

fn parallelism(graph: &PhysicalGraph, vertex: usize) -> u32 {
    u32::try_from(graph.vertices()[vertex].parallelism).unwrap_or(u32::MAX)
}

/// The group of a key of unknown type: as which the known keys are in theirs.
fn group_of(
    key: &Json,
    known: &[(KeyGroup, Json)],
    max: KeyGroupCount,
) -> Result<KeyGroup, String> {
    let group_as = |hash: Hash, key: &Json| hash(key).map(|hash| max.group_of(hash));
    let fits = |hash: &Hash| known.iter().all(|(group, key)| group_as(*hash, key) == Some(*group));
    let fitting = HASHES.iter().copied().filter(fits);
    let mut groups: Vec<KeyGroup> = fitting.filter_map(|hash| group_as(hash, key)).collect();
    groups.dedup();
    match groups[..] {
        [group] => Ok(group),
        [] => Err(format!(
            "it has no key {key}, and one can be added only if all are texts, whole numbers or \
             truth values"
        )),
        _ => Err(format!("it has no key {key}, and none that tells of which type it would be")),
    }
}

type Hash = fn(&Json) -> Option<KeyHash>;

/// As what a key may be hashed.
const HASHES: [Hash; 5] = [
    |key| key.as_str().map(KeyHash::of),
    |key| key.as_bool().map(|key| KeyHash::of(&key)),
    |key| key.as_u64().map(|key| KeyHash::of(&key)).or(key.as_i64().map(|key| KeyHash::of(&key))),
    |key| key.as_i64().and_then(|key| i32::try_from(key).ok()).map(|key| KeyHash::of(&key)),
    |key| key.as_i64().map(|key| KeyHash::of(&i128::from(key))),
];

fn entries(bytes: &[u8]) -> Result<Vec<[Value; 2]>, String> {
    decoded::<Vec<Value>>(bytes)?.into_iter().map(pair).collect()
}

fn encoded(entries: impl IntoIterator<Item = [Value; 2]>) -> Bytes {
    let entries: Vec<Value> = entries.into_iter().map(|entry| Value::Array(entry.into())).collect();
    Bytes::from(Format::Portable.encode(&entries))
}
