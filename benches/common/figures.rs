//! What a bench is asked for, and what is made of the times that it measures.

/// The numbers among the arguments of the program: Cargo adds a flag of its own.
pub(crate) fn arguments() -> Vec<u64> {
    std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
