//! Whole requests through the core, from the bytes of the frame to the bytes of the answer: the paths whose
//! instructions `perf/counts` counts. Making a request is not timed.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use oncilla_paths::{NAMES, Path, Visit, visit, warm_up};

struct Timed<'a>(&'a mut Criterion);

impl Visit for Timed<'_> {
    fn visit<P: Path>(&mut self, name: &'static str, mut path: P) {
        warm_up(&mut path);
        // One request at a time: a second one may only be made when the first is answered.
        let path = std::cell::RefCell::new(path);
        self.0.bench_function(&format!("requests/{name}"), |b| {
            let make = || path.borrow_mut().prepare();
            b.iter_batched_ref(make, |input| path.borrow_mut().serve(input), BatchSize::PerIteration);
        });
    }
}

fn requests(c: &mut Criterion) {
    for name in NAMES {
        visit(name, &mut Timed(c));
    }
}

criterion_group!(benches, requests);
criterion_main!(benches);
