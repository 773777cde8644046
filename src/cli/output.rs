//! Tables and lines on stdout.

use std::io::{self, Write};

use comfy_table::Table;
use comfy_table::presets::NOTHING;

/// How a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// JSON, one document or one object a line.
    Json,
}

/// Prints columns under their names.
pub fn table<const N: usize>(names: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(names);
    for row in rows {
        table.add_row(row);
    }
    let mut out = io::stdout().lock();
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end().strip_prefix(' ').unwrap_or(line))?;
    }
    Ok(())
}

/// Prints one line.
pub fn line(text: impl std::fmt::Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Whether the reader of stdout went away.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let found = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    found.into_iter().any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
