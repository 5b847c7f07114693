//! The program `cofferdam`.

fn main() -> std::process::ExitCode {
    cofferdam_sim::cli::main()
}
