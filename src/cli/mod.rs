//! The command line: one file a command. What a command finds goes to stdout, what goes wrong to stderr.
//!
//! Exit codes: 0 done, 1 not done, 2 wrong arguments.

mod check;
mod config;
mod consume;
mod demo;
mod dump;
mod group;
mod interrupt;
mod output;
mod produce;
mod serve;
mod settings;
mod topic;
mod txn;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Config;

pub use settings::SettingsArgs;

/// A Kafka-compatible broker for bare metal that delivers exactly once.
#[derive(Debug, Parser)]
#[command(name = "oncilla", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker until SIGTERM or SIGINT.
    Serve(SettingsArgs),
    /// Look whether this machine can run the broker, with the command that mends what is wrong.
    Check(check::Args),
    /// Show and check settings.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Create, list, describe, change and delete topics.
    Topic(topic::Args),
    /// List, describe, move and delete consumer groups
    Group(group::Args),
    /// List and describe transactional ids, find and abort hanging transactions
    Txn(txn::Args),
    /// Produce lines of standard input.
    Produce(produce::Args),
    /// Print the records of a topic.
    Consume(consume::Args),
    /// Show on a broker of its own what exactly once means, and how long it takes on this machine.
    Demo(demo::Args),
    /// Read a data directory without a broker.
    #[command(subcommand)]
    Dump(dump::DumpCommand),
}

/// Runs the command of the process's arguments. `serve` runs the broker until it is told to end.
pub fn main(serve: impl FnOnce(Config) -> anyhow::Result<()>) -> ExitCode {
    // The terminal closed or `head` had enough: end without a word, as other tools do.
    match run(Cli::parse(), serve) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli, serve: impl FnOnce(Config) -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(settings) => serve::run(&settings, serve),
        Command::Check(args) => check::run(&args),
        Command::Config(command) => config::run(&command),
        Command::Topic(args) => topic::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Group(args) => group::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Txn(args) => txn::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Produce(args) => produce::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Consume(args) => consume::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Dump(command) => dump::run(&command),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_is_answered_with_help() {
        let error = Cli::try_parse_from(["oncilla"]).expect_err("help");
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
        assert!(error.to_string().contains("serve") && error.to_string().contains("dump"));
    }

    #[test]
    fn serve_starts_the_broker_with_the_settings_of_the_flags() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().to_str().expect("text");
        let args =
            ["oncilla", "serve", "--data", data, "--listen", "127.0.0.1:0", "--cores", "1", "-X", "http.listen=off"];
        let mut started = None;
        let cli = Cli::try_parse_from(args).expect("right");
        run(cli, |config| {
            started = Some(config);
            Ok(())
        })
        .expect("started");
        let config = started.expect("serve was called");
        assert_eq!(config.data_dir, dir.path());
        assert_eq!((config.shards, config.http_listen), (1, None));
        assert_eq!(config.listeners[0].bind.port(), 0);
    }
}
