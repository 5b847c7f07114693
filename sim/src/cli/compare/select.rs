//! Which modes are compared.

use std::time::Duration;

use clap::Args;
use cofferdam::guarantee::{Guarantee, Mechanism, SinkContract, StateHome};

use super::runs::Contender;
use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::Mode;
use crate::cli::output::Console;
use crate::cli::values::{interval, word};

/// The flags.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Modes")]
pub(super) struct SelectArgs {
    /// Only modes of this guarantee; can be given several times. No guarantee is always measured,
    /// since the others are compared with it
    #[arg(long, value_name = "LEVEL", value_parser = word::<Guarantee>())]
    guarantee: Vec<Guarantee>,
    /// Only modes that are reached in this way; can be given several times
    #[arg(long, value_parser = word::<Mechanism>())]
    mechanism: Vec<Mechanism>,
    /// What the sinks promise about their writes; can be given several times [default: two-phase
    /// for exactly-once, else plain]
    #[arg(long, value_parser = word::<SinkContract>())]
    sink: Vec<SinkContract>,
    /// Where keyed state lives, if the mechanism keeps it; can be given several times [default:
    /// heap]
    #[arg(long, value_name = "WHERE", value_parser = word::<StateHome>())]
    state: Vec<StateHome>,
    /// How long each access to state that is external takes besides, as if it were far away
    #[arg(long, value_name = "DURATION", value_parser = interval, requires = "state")]
    pub(super) state_latency: Option<Duration>,
}

impl SelectArgs {
    /// What was selected, behind what it is compared with. `refused` says why a job can not be put
    /// together in a mode, if so: such a mode is left out.
    pub(super) fn contenders(
        &self,
        console: &Console,
        refused: impl Fn(Contender) -> Option<String>,
    ) -> Result<Vec<Contender>, Failure> {
        if self.state.iter().any(|state| state.is_external()) && !cfg!(feature = "sqlite") {
            let text = "--state: this program was built without the feature 'sqlite', which \
                        external state lives in";
            return Err(Failure::usage("compare", text));
        }
        let base = self.base();
        if let Some(reason) = refused(base) {
            return Err(Failure::input(reason));
        }
        let (mut all, mut reasons) = (vec![base], Vec::new());
        let mut selects_base = false;
        for contender in self.combinations() {
            let refusal = refusal(contender).or_else(|| refused(contender));
            match refusal {
                Some(reason) => reasons.push((contender, reason)),
                None if contender == base => selects_base = true,
                None => all.push(contender),
            }
        }
        if all.len() == 1 && !selects_base {
            return Err(match reasons.into_iter().next() {
                Some((_, reason)) => Failure::usage("compare", reason),
                None => Failure::again(Exit::Nothing, "no mode was selected"),
            });
        }
        for (contender, reason) in reasons {
            console.explain(format!("left out: {contender}: {reason}"));
        }
        Ok(all)
    }

    /// No guarantee, with a sink that was asked for if it can have that.
    pub(super) fn base(&self) -> Contender {
        let (guarantee, mechanism) = (Guarantee::AtMostOnce, Mechanism::None);
        let with = |sink: SinkContract| Mode { guarantee, mechanism, sink };
        let asked = self.sink.iter().map(|sink| with(*sink)).find(|mode| mode.refusal().is_none());
        let mode = asked.unwrap_or(with(SinkContract::Plain));
        Contender { mode, state: StateHome::Heap }
    }

    /// Every combination of what was given, whether its parts go together or not.
    fn combinations(&self) -> Vec<Contender> {
        let mechanisms = match &self.mechanism[..] {
            [] => Mechanism::ALL,
            given => given,
        };
        let mut all = Vec::new();
        for mechanism in mechanisms.iter().copied() {
            for guarantee in self.guarantees(mechanism) {
                for sink in self.sinks(guarantee) {
                    let mode = Mode { guarantee, mechanism, sink };
                    all.extend(self.states().map(|state| Contender { mode, state }));
                }
            }
        }
        all.sort_by_key(|contender| contender.mode.guarantee);
        all
    }

    /// Those that were given. Of those that a mechanism does not reach only who has named it wants
    /// to hear.
    fn guarantees(&self, mechanism: Mechanism) -> Vec<Guarantee> {
        let reached = mechanism.guarantee();
        match (&self.guarantee[..], &self.mechanism[..]) {
            ([], _) => vec![reached],
            (given, []) => given.iter().copied().filter(|given| *given == reached).collect(),
            (given, _) => given.to_vec(),
        }
    }

    fn sinks(&self, guarantee: Guarantee) -> Vec<SinkContract> {
        match &self.sink[..] {
            [] => vec![guarantee.default_sink()],
            given => given.to_vec(),
        }
    }

    fn states(&self) -> impl Iterator<Item = StateHome> {
        let heap = self.state.is_empty().then_some(StateHome::Heap);
        heap.into_iter().chain(self.state.iter().copied())
    }
}

/// Why the parts of a contender do not go together, if they do not.
fn refusal(contender: Contender) -> Option<String> {
    let Contender { mode, state } = contender;
    let is_kept = !state.is_external() || mode.mechanism.keeps_state();
    mode.refusal().or_else(|| {
        (!is_kept).then(|| {
            format!(
                "--state {state}: --mechanism {} takes no checkpoints or keeps no state between \
                 them: name another mechanism or heap",
                mode.mechanism
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::ConsoleArgs;

    fn select(args: &SelectArgs) -> Result<Vec<String>, String> {
        let console = Console::new(&ConsoleArgs::default());
        let all = args.contenders(&console, |_| None).map_err(|failure| failure.text)?;
        Ok(all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_mechanism_is_compared_with_the_sink_of_its_guarantee() {
        let all = select(&SelectArgs::default()).unwrap();
        assert_eq!(all.len(), Mechanism::ALL.len());
        assert_eq!(all[0], "at-most-once, none, plain");
        assert!(all.contains(&"exactly-once, aligned, two-phase".to_owned()), "{all:?}");
    }

    #[test]
    fn no_guarantee_comes_first_whatever_is_selected() {
        let of = |mechanism, sink| SelectArgs {
            mechanism: vec![mechanism],
            sink,
            ..SelectArgs::default()
        };
        let aligned = |sink| select(&of(Mechanism::Aligned, sink)).unwrap();
        let both = ["at-most-once, none, plain", "exactly-once, aligned, two-phase"];
        assert_eq!(aligned(vec![]), both);
        assert_eq!(aligned(vec![SinkContract::TwoPhase]), both);
        let discard = ["at-most-once, none, discard", "exactly-once, aligned, discard"];
        assert_eq!(aligned(vec![SinkContract::Discard]), discard);
        assert_eq!(select(&of(Mechanism::None, vec![])).unwrap(), both[..1]);
    }

    #[test]
    fn what_can_not_be_is_refused_only_if_nothing_else_was_selected() {
        let two_phase = vec![SinkContract::TwoPhase];
        let with = SelectArgs { sink: two_phase.clone(), ..SelectArgs::default() };
        assert!(select(&with).unwrap().iter().skip(1).all(|text| text.ends_with("two-phase")));
        let acks = SelectArgs { mechanism: vec![Mechanism::Acks], ..with };
        assert!(select(&acks).unwrap_err().contains("--sink two-phase"));
        let guarantee = vec![Guarantee::ExactlyOnce];
        let other =
            SelectArgs { guarantee, mechanism: vec![Mechanism::Acks], ..SelectArgs::default() };
        assert!(select(&other).unwrap_err().contains("--guarantee at-least-once"));
    }
}
