//! The `oncilla` command.

use std::process::ExitCode;

use oncilla::assembly::Oncilla;

fn main() -> ExitCode {
    oncilla::cli::main(|config| {
        let broker = Oncilla::new(&config)?;
        oncilla::broker::run(config, broker)
    })
}
