//! The `oncilla` command.

use std::process::ExitCode;

use oncilla::assembly::Oncilla;

fn main() -> ExitCode {
    oncilla::cli::main(|config| {
        oncilla::rt::keep_freed_memory();
        let broker = Oncilla::new(&config)?;
        oncilla::broker::run(config, broker)
    })
}
