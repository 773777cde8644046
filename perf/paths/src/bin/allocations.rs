//! Prints how often one request of each kind asks for memory in the core: `allocations [PATH...]`.

use std::process::ExitCode;

use oncilla_paths::allocations::{Counting, Table};
use oncilla_paths::{NAMES, visit};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = NAMES.map(str::to_owned).to_vec();
    }
    let mut table = Table::default();
    for name in &names {
        if !visit(name, &mut table) {
            eprintln!("{name}: there is no such path; there are {}", NAMES.join(", "));
            return ExitCode::from(2);
        }
    }
    for (name, allocations) in table.0 {
        println!("{name} {allocations}");
    }
    ExitCode::SUCCESS
}
