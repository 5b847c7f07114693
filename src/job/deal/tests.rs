use std::collections::BTreeSet;

use super::*;
use crate::config::JobConfig;
use crate::connector::memory::{Collect, Numbers};
use crate::guarantee::Mechanism;
use crate::id::{AttemptId, ChannelIndex, CheckpointId, SplitId, TransactionId};
use crate::job::{JobBuilder, TaskStart};
use crate::operator::Emit;
use crate::operator::keyed::{KeyedContext, KeyedProcess};
use crate::state::hash::KeyHash;
use crate::time::EventTime;

const MAX: KeyGroupCount = KeyGroupCount::new(128).expect("within 1 to 32768");
const KEYS: u64 = 300;

/// Counts, and sets a timer at the number of the key.
#[derive(Clone)]
struct Count;

impl KeyedProcess for Count {
    type Key = u64;
    type In = u64;
    type State = u64;
    type Out = u64;

    fn process(
        &mut self,
        record: u64,
        context: &mut KeyedContext<'_, u64, u64>,
        _out: &mut impl Emit<u64>,
    ) {
        *context.state().get_or_insert(0) += record + 1;
        context.register_timer(EventTime::from_millis(record as i64));
    }
}

/// Numbers, counted by key: two vertices of this parallelism.
fn job(parallelism: usize, mechanism: Mechanism) -> Job {
    let builder = JobBuilder::new("job", parallelism);
    builder
        .source("numbers", Numbers::up_to(10))
        .key_by(|number| *number)
        .process("count", Count)
        .sink("out", Collect::default());
    builder.build(JobConfig { mechanism, ..JobConfig::default() }).unwrap()
}

/// What the tasks of a job store when every key has been counted once.
fn stored(job: &Job, format: Format) -> Vec<TaskState> {
    let assigner = job.assigner(VertexId::new(1));
    let state = |task: TaskId| {
        let mut machine = job.task(task, AttemptId::new(1), TaskStart::Fresh(None)).unwrap();
        let (vertex, index) = job.graph().place_of(task);
        if vertex == VertexId::new(1) {
            let range = assigner.range(index);
            let own = |key: &u64| range.contains(MAX.group_of(KeyHash::of(key)));
            machine.process(Batch::new((0..KEYS).filter(own).collect()));
        }
        machine.capture(CheckpointId::new(7)).to_state(format)
    };
    job.graph().tasks().map(state).collect()
}

/// The keys and timers that each task of the counting vertex holds after a restore.
fn held(job: &Job, states: &[TaskState]) -> Vec<(BTreeSet<Vec<u8>>, usize)> {
    let tasks = job.graph().tasks_of(VertexId::new(1));
    let of_task = |task: TaskId| {
        let start = TaskStart::Restored(Box::new(states[task.index()].clone()));
        let mut machine = job.task(task, AttemptId::new(2), start).unwrap();
        let cells = machine.stage().cells();
        let keys = cells.iter().flat_map(|(_, cells)| cells.iter().map(|(key, _)| key.clone()));
        let keys = keys.collect();
        let snapshot = machine.capture(CheckpointId::new(8)).to_state(Format::Portable);
        let timers = snapshot.operators[0].timers.iter().flatten();
        let timers = timers.map(|(_, bytes)| {
            Format::Portable.decode::<Vec<(EventTime, u64)>>(bytes).unwrap().len()
        });
        (keys, timers.sum())
    };
    tasks.map(of_task).collect()
}

#[test]
fn rules_084_and_087_every_key_and_its_timers_go_to_one_subtask_from_any_to_any_parallelism() {
    for format in [Format::Binary, Format::Portable] {
        for before in [1, 2, 3, 5, 85] {
            let old = job(before, Mechanism::Aligned);
            let states = stored(&old, format);
            for after in [1, 2, 3, 7, 85] {
                let new = job(after, Mechanism::Aligned).with_key_groups_of(&old.shape());
                let new = new.unwrap();
                let dealt = new.deal(&old.shape(), states.clone(), &[], Left::Refused).unwrap();
                let held = held(&new, &dealt.states);
                let keys: BTreeSet<_> = held.iter().flat_map(|(keys, _)| keys).collect();
                let of_subtasks: usize = held.iter().map(|(keys, _)| keys.len()).sum();
                assert_eq!((keys.len(), of_subtasks), (KEYS as usize, KEYS as usize));
                assert!(held.iter().all(|(keys, timers)| keys.len() == *timers));
            }
        }
    }
}

#[test]
fn rule_086_the_number_of_key_groups_stays_and_bounds_the_parallelism() {
    let shape = job(2, Mechanism::Aligned).shape();
    let wide = job(129, Mechanism::Aligned);
    assert_eq!(wide.shape().key_groups, 256);
    let error = wide.with_key_groups_of(&shape).map(|_| ()).unwrap_err();
    let uid = "numbers".to_owned();
    assert_eq!(error, DealError::Parallelism { uid, parallelism: 129, stored: 128 });
    let narrow = job(2, Mechanism::Aligned).with_key_groups_of(&wide.shape()).unwrap();
    assert_eq!(narrow.shape().key_groups, 256);

    let builder = JobBuilder::new("job", 2);
    builder.key_groups(MAX);
    builder.source("numbers", Numbers::up_to(1)).sink("out", Collect::default());
    let given = builder.build(JobConfig::default()).unwrap();
    let error = given.with_key_groups_of(&wide.shape()).map(|_| ()).unwrap_err();
    assert_eq!(error, DealError::KeyGroups { stored: 256, wanted: 128 });
}

#[test]
fn rule_091_lists_are_cut_evenly_and_the_next_list_goes_on_where_one_ended() {
    let sizes = |(parts, next): (Vec<Vec<u8>>, usize)| {
        (parts.iter().map(Vec::len).collect::<Vec<_>>(), parts.concat(), next)
    };
    let elements: Vec<u8> = (0..6).collect();
    assert_eq!(sizes(deal_evenly(&elements, 4, 0)), (vec![2, 2, 1, 1], elements.clone(), 2));
    assert_eq!(sizes(deal_evenly(&elements[..5], 4, 2)).0, [1, 1, 2, 1]);
    assert_eq!(sizes(deal_evenly(&elements[..1], 3, 2)).0, [0, 0, 1]);
}

fn listing(lists: &[(&str, Redistribution, &[u8])]) -> Option<OperatorState> {
    let list = |(name, redistribution, elements): &(&str, Redistribution, &[u8])| StoredList {
        name: (*name).to_owned(),
        redistribution: *redistribution,
        elements: elements.iter().map(|element| Bytes::from(vec![*element])).collect(),
    };
    Some(OperatorState { lists: lists.iter().map(list).collect(), ..OperatorState::default() })
}

fn elements(dealt: &[Vec<StoredList>]) -> Vec<Vec<Vec<u8>>> {
    let of_list = |list: &StoredList| list.elements.iter().map(|element| element[0]).collect();
    dealt.iter().map(|lists| lists.iter().map(of_list).collect()).collect()
}

#[test]
fn rule_092_each_subtask_is_restored_with_all_elements_of_a_union_list() {
    use Redistribution::{Split, Union};
    let operator =
        |split: u8, union: &[u8]| listing(&[("split", Split, &[split]), ("union", Union, union)]);
    let job = job(1, Mechanism::Aligned);
    let blank = stored(&job, Format::Binary).swap_remove(0);
    let state = |operator: Option<OperatorState>| TaskState {
        operators: operator.into_iter().collect(),
        ..blank.clone()
    };
    let mut subtasks = [operator(1, &[7, 6]), None, operator(2, &[]), operator(3, &[8])].map(state);
    assert!(has_unions(&subtasks[0]) && !has_unions(&subtasks[1]));
    let unions = Unions::of(&subtasks);
    subtasks.iter_mut().for_each(|state| unions.join(state));
    let joined = |split: u8| operator(split, &[7, 6, 8]);
    assert_eq!(subtasks, [joined(1), None, joined(2), joined(3)].map(state));
}

#[test]
fn rules_091_to_093_split_union_and_broadcast_lists_are_dealt_out_by_name() {
    use Redistribution::{Broadcast, Split, Union};
    let stored = [
        listing(&[("split", Split, &[1, 2, 3]), ("union", Union, &[7]), ("all", Broadcast, &[9])]),
        listing(&[("split", Split, &[4]), ("union", Union, &[8]), ("all", Broadcast, &[9])]),
    ];
    let dealt = elements(&deal_lists("op", &stored, 2, true).unwrap());
    // In the order of names; a split list stays with its subtask if the parallelism does.
    assert_eq!(dealt[0], [vec![9], vec![1, 2, 3], vec![7]]);
    assert_eq!(dealt[1], [vec![9], vec![4], vec![8]]);
    let dealt = elements(&deal_lists("op", &stored, 3, true).unwrap());
    assert_eq!(dealt[0], [vec![9], vec![1, 2], vec![7]]);
    assert_eq!(dealt[1], [vec![9], vec![3], vec![8]]);
    assert_eq!(dealt[2], [vec![9], vec![4], vec![]]);

    let differing = [listing(&[("all", Broadcast, &[9])]), listing(&[("all", Broadcast, &[8])])];
    let error = deal_lists("op", &differing, 2, true).unwrap_err();
    assert_eq!(error, DealError::Differing { uid: "op".to_owned(), list: "all".to_owned() });
    let dealt = elements(&deal_lists("op", &differing, 3, false).unwrap());
    assert_eq!(dealt, [[[9]], [[8]], [[9]]], "where records come again no two need be equal");
}

#[test]
fn rule_094_an_odd_parallelism_that_is_no_power_of_two_gets_all_elements() {
    let stored: Vec<_> =
        (0..65).map(|element| listing(&[("list", Redistribution::Split, &[element])])).collect();
    for parallelism in [1, 3, 64, 66, 100] {
        let dealt = elements(&deal_lists("op", &stored, parallelism, true).unwrap());
        let all: Vec<u8> = dealt.concat().concat();
        assert_eq!(all, (0..65).collect::<Vec<_>>(), "to {parallelism}");
    }
}

#[test]
fn splits_are_dealt_out_in_turn_with_their_positions() {
    let split = |number: u32| SplitState {
        split: SplitId::new(number),
        cursor: vec![number as u8],
        records: u64::from(number),
        lost: 0,
        watermark: Some(EventTime::from_millis(i64::from(number))),
    };
    let least = |watermark| Some(EventTime::from_millis(watermark));
    let state = |numbers: &[u32]| SourceState {
        splits: numbers.iter().map(|number| split(*number)).collect(),
        watermark: least(0),
        ..SourceState::default()
    };
    let farther = SourceState { watermark: least(1), ..state(&[1, 3]) };
    let stored = [state(&[0, 2]), farther];
    assert_eq!(deal_splits(&stored, 2), stored);
    assert_eq!(deal_splits(&stored, 1), [state(&[0, 1, 2, 3])]);
    assert_eq!(deal_splits(&stored, 3), [state(&[0, 3]), state(&[1]), state(&[2])]);
}

#[test]
fn rule_065_pending_transactions_go_to_the_subtask_that_takes_their_writer_over() {
    let old = job(4, Mechanism::Aligned);
    let mut states = stored(&old, Format::Binary);
    for task in old.graph().tasks_of(VertexId::new(1)) {
        let (vertex, subtask) = old.graph().place_of(task);
        let transaction =
            TransactionId { vertex, subtask, attempt: AttemptId::new(1), sequence: 0 };
        let checkpoint = CheckpointId::new(7);
        states[task.index()].transactions = vec![PendingTransaction { checkpoint, transaction }];
    }
    let new = job(3, Mechanism::Aligned);
    let dealt = new.deal(&old.shape(), states, &[], Left::Refused).unwrap();
    let writers = |task: TaskId| -> Vec<u32> {
        let pending = &dealt.states[task.index()].transactions;
        pending.iter().map(|pending| pending.transaction.subtask.get()).collect()
    };
    let of_tasks: Vec<_> = new.graph().tasks_of(VertexId::new(1)).map(writers).collect();
    assert_eq!(of_tasks, [vec![0, 3], vec![1], vec![2]]);
}

#[test]
fn rule_095_records_in_flight_go_on_to_the_owners_of_their_keys() {
    let old = job(3, Mechanism::Unaligned);
    let mut states = stored(&old, Format::Binary);
    let assigner = old.assigner(VertexId::new(1));
    for channel in old.graph().channels() {
        let (_, receiver) = old.graph().place_of(channel.to);
        let range = assigner.range(receiver);
        let own = |key: &u64| range.contains(MAX.group_of(KeyHash::of(key)));
        // Every sender has each key under way, one in the receiver's part, the next in its own.
        let keys: Vec<u64> = (0..40).filter(own).collect();
        let (received, emitted) = keys.split_at(keys.len() / 2);
        let bytes =
            |keys: &[u64]| vec![Bytes::from(Batch::new(keys.to_vec()).encode(Format::Binary))];
        let inputs = &mut states[channel.to.index()].in_flight.inputs;
        inputs.insert(channel.index, bytes(received));
        let outputs = &mut states[channel.from.index()].in_flight.outputs;
        outputs.insert(channel.outlet, bytes(emitted));
    }
    for after in [1, 2, 4, 5] {
        let new = job(after, Mechanism::Unaligned);
        let dealt = new.deal(&old.shape(), states.clone(), &[], Left::Refused).unwrap();
        let assigner = new.assigner(VertexId::new(1));
        let mut found = Vec::new();
        for task in new.graph().tasks_of(VertexId::new(1)) {
            let (_, subtask) = new.graph().place_of(task);
            let inputs: &BTreeMap<ChannelIndex, Vec<Bytes>> =
                &dealt.states[task.index()].in_flight.inputs;
            for bytes in inputs.values().flatten() {
                for key in Format::Binary.decode::<Vec<u64>>(bytes).unwrap() {
                    let group = MAX.group_of(KeyHash::of(&key));
                    assert!(assigner.range(subtask).contains(group), "{key} is not its own");
                    found.push(key);
                }
            }
        }
        found.sort_unstable();
        let all: Vec<u64> = (0..40).flat_map(|key| [key; 3]).collect();
        assert_eq!(found, all, "from 3 to {after}: each record once");
    }
}

#[test]
fn state_that_nobody_claims_is_refused_by_name_unless_it_may_be_dropped() {
    let old = job(2, Mechanism::Aligned);
    let states = stored(&old, Format::Binary);
    let builder = JobBuilder::new("job", 2);
    builder
        .source("numbers", Numbers::up_to(10))
        .key_by(|number| *number)
        .process("total", Count)
        .sink("out", Collect::default());
    let new = builder.build(JobConfig::default()).unwrap();
    let error = new.deal(&old.shape(), states.clone(), &[], Left::Refused).unwrap_err();
    assert_eq!(error, DealError::Unclaimed("'count'".to_owned()));
    let dealt = new.deal(&old.shape(), states, &[], Left::Dropped).unwrap();
    assert!(held(&new, &dealt.states).iter().all(|(keys, _)| keys.is_empty()));
}

#[test]
fn rule_099_what_had_finished_begins_finished() {
    let old = job(2, Mechanism::Aligned);
    let mut states = stored(&old, Format::Binary);
    (states[0].finished, states[1].finished) = (true, false);
    let deal = |states| job(3, Mechanism::Aligned).deal(&old.shape(), states, &[], Left::Refused);
    let finished = |dealt: &Dealt| dealt.states.iter().map(|s| s.finished).collect::<Vec<_>>();
    assert_eq!(finished(&deal(states.clone()).unwrap()), [false; 6]);
    states[1].finished = true;
    let dealt = deal(states).unwrap();
    assert_eq!(finished(&dealt), [true, true, true, false, false, false]);
}

#[test]
fn broadcast_records_in_flight_go_to_every_subtask_once() {
    let job = |parallelism| {
        let builder = JobBuilder::new("job", 1);
        let numbers = builder.source("numbers", Numbers::up_to(10)).broadcast();
        numbers.parallelism(parallelism).map("same", |n| n).sink("out", Collect::default());
        let mechanism = Mechanism::Transactional;
        builder.build(JobConfig { mechanism, ..JobConfig::default() }).unwrap()
    };
    let old = job(2);
    let start = TaskStart::Fresh(None);
    let state = |task| {
        let mut task = old.task(task, AttemptId::new(1), start.clone()).unwrap();
        task.capture(CheckpointId::new(7)).to_state(Format::Binary)
    };
    let mut states: Vec<TaskState> = old.graph().tasks().map(state).collect();
    // The first copy has the number 5 behind it, the second has 4 and 5 to come.
    for (channel, numbers) in old.graph().channels().iter().zip([vec![5_u64], vec![4, 5]]) {
        let bytes = vec![Bytes::from(Batch::new(numbers).encode(Format::Binary))];
        states[channel.to.index()].in_flight.inputs.insert(channel.index, bytes);
    }
    for (after, expected) in [(1, vec![vec![5]]), (3, vec![vec![5], vec![4, 5], vec![5]])] {
        let new = job(after);
        let dealt = new.deal(&old.shape(), states.clone(), &[], Left::Refused).unwrap();
        let of_task = |task: TaskId| -> Vec<u64> {
            let inputs = dealt.states[task.index()].in_flight.inputs.values().flatten();
            inputs.flat_map(|bytes| Format::Binary.decode::<Vec<u64>>(bytes).unwrap()).collect()
        };
        let found: Vec<_> = new.graph().tasks_of(VertexId::new(1)).map(of_task).collect();
        assert_eq!(found, expected, "from 2 to {after}");
    }
}
