//! The `oncilla` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    oncilla::cli::main(|_config| anyhow::bail!("this build has no broker in it"))
}
