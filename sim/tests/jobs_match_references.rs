//! Every built-in job, driven task by task in a drawn order without failures, comes to exactly what
//! its reference says: in state, in output, and in what the records of each source bring about.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, VecDeque};

use cofferdam::config::JobConfig;
use cofferdam::element::Element;
use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::id::AttemptId;
use cofferdam::job::TaskStart;
use cofferdam::operator::sink::SinkRequest;
use cofferdam::operator::source::{ReadOutcome, ReadReply, ReadRequest};
use cofferdam::task::{Task, TaskOutput};
use cofferdam_sim::dice::{Dice, Purpose};
use cofferdam_sim::jobs::{self, BuiltinJob, Case, CaseData, Parameters, Setup, Shape};
use cofferdam_sim::reference::{ByUid, Outcome, RecordId, Rows, Table};

/// Tasks and the channels between them; whatever can happen next is drawn.
struct Drive {
    case: Case,
    tasks: Vec<Task>,
    channels: Vec<VecDeque<Element>>,
    reads: Vec<(usize, ReadRequest)>,
    outputs: ByUid<Rows>,
}

impl Drive {
    fn new(case: Case) -> Self {
        let starts = case.job.discover().unwrap();
        let make = |(task, start)| {
            case.job.task(task, AttemptId::new(1), TaskStart::Fresh(start)).unwrap()
        };
        let tasks = case.job.graph().tasks().zip(starts).map(make).collect();
        let channels = vec![VecDeque::new(); case.job.graph().channels().len()];
        Self { case, tasks, channels, reads: Vec::new(), outputs: BTreeMap::new() }
    }

    fn run(mut self, dice: &mut Dice) -> (Case, Outcome) {
        for task in 0..self.tasks.len() {
            self.drain(task);
        }
        loop {
            let full: Vec<usize> =
                (0..self.channels.len()).filter(|c| !self.channels[*c].is_empty()).collect();
            let choices = full.len() + self.reads.len();
            if choices == 0 {
                break;
            }
            match dice.below(choices as u64) as usize {
                choice if choice < full.len() => self.deliver(full[choice]),
                choice => self.read(choice - full.len()),
            }
        }
        let mut cells: ByUid<Table> = BTreeMap::new();
        for (uid, found) in self.tasks.iter().flat_map(|task| task.stage().cells()) {
            if !found.is_empty() {
                cells.entry(uid.to_string()).or_default().extend(found);
            }
        }
        (self.case, Outcome { cells, outputs: self.outputs, ..Outcome::default() })
    }

    fn deliver(&mut self, channel: usize) {
        let place = self.case.job.graph().channels()[channel];
        let element = self.channels[channel].pop_front().unwrap();
        let task = place.to.index();
        self.tasks[task].handle_element(place.index, element);
        self.tasks[task].flush();
        self.drain(task);
    }

    fn read(&mut self, position: usize) {
        let (task, request) = self.reads.swap_remove(position);
        let (vertex, _) = self.case.job.graph().place_of(self.tasks[task].id());
        let mut source = self.case.job.source(vertex).unwrap();
        let outcome = source.read(&request.cursor, request.records_max);
        if let ReadOutcome::Records { records, cursor } = &outcome {
            let input = self.case.inputs.iter().find(|input| input.vertex == vertex).unwrap();
            let first = (input.offset_at)(&request.cursor);
            let next = first + records.len() as u64;
            // Where subtasks take turns, the records of others lie in between.
            assert!((input.offset_at)(cursor) >= next, "the cursor leads back");
        }
        self.tasks[task].handle_read(ReadReply { split: request.split, outcome });
        self.tasks[task].flush();
        self.drain(task);
    }

    fn drain(&mut self, task: usize) {
        while let Some(output) = self.tasks[task].poll_output() {
            match output {
                TaskOutput::Send(outlet, element) => {
                    let id = self.tasks[task].id();
                    let channel = self.case.job.graph().outputs(id)[outlet.index()];
                    self.channels[channel.index()].push_back(element);
                }
                TaskOutput::Read(request) => self.reads.push((task, request)),
                TaskOutput::Sink(SinkRequest::Write { records, .. }) => {
                    let (vertex, _) = self.case.job.graph().place_of(self.tasks[task].id());
                    let (uid, _) = self.case.job.sink(vertex).unwrap();
                    let rows = self.outputs.entry(uid.to_string()).or_default();
                    for position in 0..records.len() {
                        rows.push(&records.encode_record(position));
                    }
                }
                TaskOutput::Report(_) => {}
                TaskOutput::Sink(_)
                | TaskOutput::Store(_)
                | TaskOutput::Acknowledge(_)
                | TaskOutput::Block(_)
                | TaskOutput::Unblock(_)
                | TaskOutput::Tell(..)
                | TaskOutput::Alarm(_)
                | TaskOutput::Cut(_)
                | TaskOutput::Overtake(..)
                | TaskOutput::Hurry(..)
                | TaskOutput::Save(_)
                | TaskOutput::WakeAt(_)
                | TaskOutput::WaitUntil(_) => panic!("no checkpoint was triggered"),
            }
        }
    }
}

/// A case of 60 records; at every third seed the parallelism is 1.
fn case(job: &dyn BuiltinJob, seed: u64, given: &[(&str, &str)]) -> Case {
    // No graph is drawn with a queue, which waits for acknowledgements that nobody sends here.
    let mechanism = Mechanism::FullReplay;
    let batch_records = seed as usize % 5 + 1;
    let setup = Setup {
        shape: Shape { parallelism: seed as usize % 3 + 1, key_groups: None, first: None },
        sink: SinkContract::Plain,
        config: JobConfig { mechanism, batch_records, ..JobConfig::default() },
        parameters: Parameters::given(job, given.iter().copied()).unwrap(),
    };
    job.case(&CaseData { seed, records: 60, lines: None }, &setup).unwrap()
}

fn check(job: &dyn BuiltinJob, given: &[(&str, &str)]) {
    for seed in 0..60 {
        let drive = Drive::new(case(job, seed, given));
        let (case, got) = drive.run(&mut Dice::new(seed, Purpose::Schedule));
        let want = case.reference.run_all();
        assert_eq!(got.cells, want.cells, "{} seed {seed}: state", job.name());
        if case.reference.rows_depend_on_order() && seed % 3 > 0 {
            let (got, want) = (row_count(&got), row_count(&want));
            assert_eq!(got, want, "{} seed {seed}: output", job.name());
        } else {
            assert_eq!(got.outputs, want.outputs, "{} seed {seed}: output", job.name());
        }
        let tasks = case.job.graph().task_count();
        assert!((1..=20).contains(&tasks), "{} seed {seed}: {tasks} tasks", job.name());
    }
}

#[test]
fn every_job_comes_to_what_its_reference_says() {
    for job in jobs::all() {
        check(*job, &[]);
    }
}

#[test]
fn final_counts_come_once_a_word() {
    check(jobs::find("wordcount").unwrap(), &[("emit", "final")]);
}

#[test]
fn visits_are_forgotten_in_time_at_the_ends_of_its_parameters() {
    let job = jobs::find("visits").unwrap();
    for forget in ["0ms", "1ms", "3s"] {
        for disorder in ["0s", "1ms", "5s", "end"] {
            check(job, &[("forget", forget), ("disorder", disorder)]);
        }
    }
}

#[test]
fn smoke_alarm_is_right_at_the_ends_of_its_parameters() {
    let job = jobs::find("smoke-alarm").unwrap();
    for within in ["0ms", "1ms", "3s"] {
        for disorder in ["0s", "1ms", "5s", "end"] {
            check(job, &[("within", within), ("disorder", disorder)]);
        }
    }
}

#[test]
fn windows_are_right_whatever_they_are_and_however_far_the_input_is_out_of_order() {
    let job = jobs::find("windows").unwrap();
    for window in ["tumbling:1ms", "sliding:7ms/3ms", "sliding:3ms/7ms", "session:5ms"] {
        for (disorder, lateness) in [("0s", "0s"), ("5ms", "3ms"), ("30ms", "0s"), ("end", "1s")] {
            check(job, &[("window", window), ("disorder", disorder), ("lateness", lateness)]);
        }
    }
}

#[test]
fn applying_every_record_once_is_the_whole_input() {
    for job in jobs::all() {
        let case = case(*job, 4, &[]);
        if let Some(once) = case.reference.run(&records(&case)) {
            assert_eq!(once, case.reference.run_all(), "{}", job.name());
        }
    }
}

#[test]
fn repeated_records_change_the_state_of_just_those_jobs_that_do_not_call_it_idempotent() {
    for job in jobs::all() {
        let case = case(*job, 4, &[]);
        let whole = case.reference.run_all();
        let twice: Vec<RecordId> = records(&case).iter().flat_map(|record| [*record; 2]).collect();
        let Some(repeated) = case.reference.run(&twice) else { continue };
        let traits = case.job.graph().tasks().flat_map(|task| {
            let start = TaskStart::Fresh(None);
            case.job.task(task, AttemptId::new(1), start).unwrap().stage().describe()
        });
        let is_idempotent = traits.into_iter().all(|(_, t)| !t.stateful || t.idempotent);
        // Where no state is left at the end, its rows say what it was; so do they of a broadcast
        // join, in whose cells nothing waits.
        let is_gone = whole.cells.is_empty() || job.name() == "enrich";
        let is_same = match is_gone {
            true => repeated.outputs == whole.outputs,
            false => repeated.cells == whole.cells,
        };
        assert_eq!(is_same, is_idempotent, "{}", job.name());
    }
}

#[test]
fn effects_add_up_to_the_rows_of_a_run() {
    for name in ["wordcount", "rolling-sum", "random-graph", "max"] {
        for seed in 0..20 {
            let case = case(jobs::find(name).unwrap(), seed, &[]);
            let effects = records(&case).into_iter().map(|record| case.reference.effects(record));
            let outputs: usize = effects.map(|effects| effects.outputs as usize).sum();
            let rows = row_count(&case.reference.run_all());
            assert_eq!(outputs, rows, "{name} seed {seed}");
        }
    }
}

fn row_count(outcome: &Outcome) -> usize {
    outcome.outputs.values().map(|rows| rows.iter().count()).sum()
}

/// Every record of every source.
fn records(case: &Case) -> Vec<RecordId> {
    let of_input = |(source, input): (u32, &jobs::CaseInput)| {
        (0..input.records).map(move |offset| RecordId { source, offset })
    };
    (0..).zip(&case.inputs).flat_map(of_input).collect()
}
