//! One OffsetCommit of one partition, from the decision to its line in the journal, in a slot of 1, 100 and 10,000
//! groups.
//!
//! Goal: the same at every size, so that what a commit costs does not depend on who else commits. The groups are asked
//! in a scattered order; the largest slot pays for the caches that it misses, and for nothing else.

use criterion::{Criterion, criterion_group, criterion_main};
use oncilla_paths::offset_commit::{OffsetCommit, commit};

/// Commits that one write of the journal carries.
const GROUP_COMMIT: i64 = 64;

fn commits(c: &mut Criterion) {
    let mut bench = c.benchmark_group("offset_commit");
    for count in [1, 100, 10_000] {
        let mut path = OffsetCommit::new(count);
        bench.bench_function(count.to_string(), |b| {
            b.iter(|| {
                let (at, offset) = path.turn();
                path.ask(at, commit(offset));
                if offset % GROUP_COMMIT == 0 {
                    path.write();
                }
            });
        });
    }
    bench.finish();
}

criterion_group!(benches, commits);
criterion_main!(benches);
