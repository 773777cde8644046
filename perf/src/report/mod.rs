//! `oncilla-perf report`: runs in JSON become a page of Markdown with plots beside it.
//!
//! Reads only what the modes wrote (`result`), measures nothing but the floors, and those only when asked. A file that
//! is no run, or of a newer format, is refused by its name; nothing is written then.

pub mod axis;
mod curves;
pub mod histogram;
mod plot;
mod text;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::machine;
use crate::result::{FORMAT, Run};

/// Name of the page.
const PAGE: &str = "report.md";

/// Operations that measure each floor when a report is to do so.
const FLOOR_COUNT: u32 = 2000;

/// Options of `report`.
#[derive(clap::Args)]
pub struct Options {
    /// Files that `--json` wrote; `-` reads one from standard input.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Directory for report.md and its plots; created if it is not there.
    #[arg(long)]
    out: PathBuf,
    /// Measure the floors of this machine's disk below DIR now, for runs that were written without. Only right on the
    /// machine that made the runs.
    #[arg(long, value_name = "DIR")]
    floor: Option<PathBuf>,
}

/// Writes the report and tells its path.
pub fn run(options: &Options) -> Result<PathBuf> {
    let mut runs = options.runs.iter().map(|path| load(path)).collect::<Result<Vec<_>>>()?;
    if let Some(dir) = &options.floor {
        add_floors(&mut runs, dir, FLOOR_COUNT);
    }
    write(&runs, &options.out)
}

/// Reads one run.
pub fn load(path: &Path) -> Result<Run> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
    } else {
        text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    }
    parse(&text).with_context(|| path.display().to_string())
}

/// One run from its JSON.
pub fn parse(text: &str) -> Result<Run> {
    let run: Run = serde_json::from_str(text).context("this is no run of oncilla-perf")?;
    if run.format != FORMAT {
        bail!("the run has format {}, and this oncilla-perf reads {FORMAT}", run.format);
    }
    Ok(run)
}

fn add_floors(runs: &mut [Run], dir: &Path, count: u32) {
    let mut here = machine::describe(dir, count);
    // Nobody is to think that they were measured while the runs went on.
    here.floors_ns.iter_mut().for_each(|(name, _)| name.push_str(", when the report was made"));
    for run in runs {
        let machine = run.machine.get_or_insert_with(|| here.clone());
        if machine.floors_ns.is_empty() {
            machine.floors_ns.clone_from(&here.floors_ns);
        }
    }
}

/// Writes the page and its plots to `out`.
pub fn write(runs: &[Run], out: &Path) -> Result<PathBuf> {
    let labels = labels(runs);
    let plots = curves::plots(runs, &labels)?;
    let shown: Vec<_> = plots.iter().map(|file| (file.plot.title.clone(), file.name)).collect();
    let page = text::markdown(runs, &labels, &shown)?;
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let put = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display())).map(|()| path)
    };
    for file in &plots {
        put(file.name, &file.plot.svg())?;
    }
    put(PAGE, &page)
}

/// Names of runs: target and client if there is more than one, the mode if there are several, numbers for equals.
fn labels(runs: &[Run]) -> Vec<String> {
    let differs = |of: fn(&Run) -> &String| runs.iter().any(|run| of(run) != of(&runs[0]));
    let (modes, clients) = (differs(|run| &run.mode), differs(|run| &run.client));
    let base = |run: &Run| {
        let target = if run.target.name.is_empty() { &run.target.bootstrap } else { &run.target.name };
        let mut label = target.clone();
        if clients {
            label = format!("{label}, {}", run.client);
        }
        if modes { format!("{label}, {}", run.mode) } else { label }
    };
    let bases: Vec<_> = runs.iter().map(base).collect();
    let numbered = |(at, base): (usize, &String)| {
        let alike = bases.iter().filter(|other| *other == base).count();
        let before = bases[..at].iter().filter(|other| *other == base).count();
        if alike > 1 { format!("{base} #{}", before + 1) } else { base.clone() }
    };
    bases.iter().enumerate().map(numbered).collect()
}

#[cfg(test)]
mod tests;
