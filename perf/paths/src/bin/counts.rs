//! Serves requests of one kind in a function that callgrind is told to count: `counts PATH REQUESTS [EXTRA]`.
//!
//! Only what runs in [`oncilla_counted`] counts (`--toggle-collect=oncilla_counted`), so neither the set-up nor the
//! making of requests does. With EXTRA, each EXTRA-th request brings a second one with it that is counted for nothing:
//! a change that is known, for showing that the comparison sees it.

use std::hint::black_box;
use std::process::ExitCode;

use oncilla_paths::{NAMES, Path, Visit, visit, warm_up};

/// What is counted.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn oncilla_counted(work: &mut dyn FnMut()) {
    work();
}

struct Counted {
    requests: usize,
    extra: usize,
}

impl Visit for Counted {
    fn visit<P: Path>(&mut self, _: &'static str, mut path: P) {
        warm_up(&mut path);
        for n in 1..=self.requests {
            let again = self.extra > 0 && n.is_multiple_of(self.extra);
            for _ in 0..=usize::from(again) {
                let mut input = path.prepare();
                let mut answer = None;
                oncilla_counted(&mut || answer = Some(path.serve(&mut input)));
                black_box(answer);
            }
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).map_or(Ok(0), |text| text.parse::<usize>());
    let (Some(name), Ok(requests @ 1..), Ok(extra), ..=3) = (args.first(), number(1), number(2), args.len()) else {
        eprintln!("counts PATH REQUESTS [EXTRA], with PATH one of {}", NAMES.join(", "));
        return ExitCode::from(2);
    };
    if !visit(name, &mut Counted { requests, extra }) {
        eprintln!("{name}: there is no such path; there are {}", NAMES.join(", "));
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}
