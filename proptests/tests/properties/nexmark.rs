//! The queries of Nexmark against their references, which look at every event with every other:
//! whatever the events are and however they are dealt out, with faults and without.

use cofferdam::guarantee::Guarantee;
use cofferdam_sim::jobs::{self, Parameters};
use cofferdam_sim::options::FaultProfile;
use cofferdam_sim::oracle::Verdict;
use cofferdam_sim::run::{Mode, Run};
use proptest::prelude::*;
use proptest::sample::select;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn queries_come_to_what_their_references_say(
        query in 0..9_u8,
        seed: u64,
        records in 1..250_usize,
        parallelism in 1..4_usize,
        faults in select(vec![FaultProfile::None, FaultProfile::Full, FaultProfile::Rescale]),
        rate in select(vec!["20", "1k", "10k"]),
        shares in (1..4_u8, 1..4_u8, 1..9_u8),
        out_of_order in 1..30_u8,
        spans in (1..60_u8, 1..60_u8),
    ) {
        let job = jobs::find(&format!("nexmark-q{query}")).expect("there are nine");
        let given = [
            ("event-rate", rate.to_owned()),
            ("event-shares", format!("{}:{}:{}", shares.0, shares.1, shares.2)),
            ("out-of-order", out_of_order.to_string()),
            ("window", format!("{}ms", spans.0)),
            ("slide", format!("{}ms", spans.1)),
        ];
        let known = given.iter().filter(|(flag, _)| {
            job.parameters().iter().any(|parameter| parameter.flag == *flag)
        });
        let known = known.map(|(flag, value)| (*flag, value.as_str()));
        let parameters = Parameters::given(job, known).expect("they are its own");
        let usual = Mode::of(Guarantee::ExactlyOnce, parameters);
        let mode = Mode { records, parallelism: Some(parallelism), faults, ..usual };
        let mut run = Run::new(&job, &mode, seed, None, false).expect("it can be put together");
        let judgement = run.finish().judgement;
        prop_assert_eq!(judgement.state, Verdict::Held, "{:?}", judgement);
        prop_assert_eq!(judgement.output, Some(Verdict::Held), "{:?}", judgement);
    }
}
