//! Whole jobs on the threaded runtime.
use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{Collect, CollectTransactions, Numbers};
use cofferdam::job::JobBuilder;
use cofferdam::runtime::{RunOptions, run};

#[test]
fn a_job_over_memory_runs() {
    for parallelism in [1, 2, 4] {
        let out = CollectTransactions::default();
        let builder = JobBuilder::new("evens", parallelism);
        builder
            .source("numbers", Numbers::up_to(10_000))
            .filter("even", |number| number % 2 == 0)
            .key_by(|number| number % 10)
            .aggregate("sum", 0, |sum: &mut u64, number| *sum += number)
            .transactional_sink("out", out.clone());
        let job = builder.build(JobConfig::default()).unwrap();
        let report = run(&job, RunOptions { workers: 2, ..RunOptions::default() }).unwrap();
        assert_eq!(report.records_in, 10_000);
        assert_eq!(report.records_out, 5_000);
        assert_eq!(out.committed().len(), 5_000);
    }
    let _ = Collect::<u64>::default();
}
