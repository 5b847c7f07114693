//! The program `cofferdam`.

/// Simulated runs allocate many small values, for which the system's allocator is slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cofferdam_sim::cli::main()
}
