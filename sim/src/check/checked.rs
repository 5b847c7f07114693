//! What trying a job of one's own has come to.

use std::fmt;

use crate::campaign::Tally;
use crate::oracle::Verdict;

/// What trying a job has come to. As text it says what was found and what was not looked at.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The sums over all runs.
    pub tally: Tally,
    /// Why a claim that no run refuted is not held: what was not judged, or not put to the test.
    pub reasons: Vec<String>,
}

impl Checked {
    /// What the runs say together, with what is to be said of all of them.
    pub(super) fn new(tally: Tally, of_all: Vec<String>) -> Self {
        let mut reasons = Vec::new();
        if tally.runs == 0 {
            reasons.push("no seed was run".to_owned());
        } else if tally.faults() == 0 {
            reasons.push("no fault hit any run".to_owned());
        }
        reasons.extend(tally.unjudged_texts());
        reasons.extend(of_all);
        Self { tally, reasons }
    }

    /// Violated if a run refuted the claim, held if all that it speaks of was judged and put to the
    /// test, else unknown.
    pub fn verdict(&self) -> Verdict {
        if self.tally.refuted > 0 {
            Verdict::Violated
        } else if self.reasons.is_empty() && self.tally.unknown == 0 {
            Verdict::Held
        } else {
            Verdict::Unknown
        }
    }

    /// Whether all that the claim speaks of was judged and put to the test, and no run refuted it.
    pub fn is_held(&self) -> bool {
        self.verdict() == Verdict::Held
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { runs, restored, refuted, .. } = self.tally;
        let faults = self.tally.faults();
        write!(
            f,
            "{}: {runs} runs, {faults} faults, {restored} runs went on from a checkpoint in the \
             midst of the input",
            self.verdict()
        )?;
        if let Some(seed) = self.tally.first_refuting_seed {
            let oracles: Vec<&str> = self.tally.oracles.keys().copied().collect();
            write!(f, "\nrefuted in {refuted} runs, first by seed {seed}: {}", oracles.join(", "))?;
        }
        for reason in &self.reasons {
            write!(f, "\nnot judged: {reason}")?;
        }
        Ok(())
    }
}
