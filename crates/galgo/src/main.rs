//! The entry point of the `galgo` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    galgo::cli::main()
}
