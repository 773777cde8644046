//! Cost of one frame over a lane between two shards, and of one call to another shard and back.
//!
//! Frames are sent in bursts that fit the ring, as a turn of a busy shard does; a second lane reports the end.

use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use oncilla::rt::{Mesh, ShardOptions, lane, mesh_seats, sleep, start_shard};
use oncilla_shards::ids::ShardId;
use oncilla_shards::limits;

fn one_way(frames: u64) -> Duration {
    let (sender, receiver) = lane::<[u64; 4]>(limits::LANE_FRAMES_MAX);
    let (back, done) = lane::<()>(8);
    let receiving = start_shard(ShardId(1), ShardOptions { cpu: Some(1), ..Default::default() }, move || async move {
        let (lane, back) = (receiver.connect().await, back.connect().await);
        for _ in 0..frames {
            lane.receive().await.expect("a frame");
        }
        back.send(()).expect("the sender waits");
        sleep(Duration::from_millis(20)).await;
    });
    let sending = start_shard(ShardId(0), ShardOptions { cpu: Some(0), ..Default::default() }, move || async move {
        let (lane, done) = (sender.connect().await, done.connect().await);
        let started = Instant::now();
        for k in 0..frames {
            // The bound holds: a full list waits for room as calls do.
            while lane.send([k; 4]).is_err() {
                lane.room().await;
            }
        }
        done.receive().await.expect("the end");
        started.elapsed()
    });
    let elapsed = sending.expect("a thread").join().expect("ends");
    receiving.expect("a thread").join().expect("ends");
    elapsed
}

struct Ctx {
    _mesh: Rc<Mesh<Ctx>>,
}

fn round_trip(calls: u64) -> Duration {
    let mut seats = mesh_seats::<Ctx>(2).into_iter();
    let (zero, one) = (seats.next().expect("two"), seats.next().expect("two"));
    let (finish, finished) = mpsc::channel::<()>();
    let serving = start_shard(ShardId(1), ShardOptions { cpu: Some(1), ..Default::default() }, move || async move {
        let mesh = one.connect().await;
        mesh.serve(&Rc::new(Ctx { _mesh: mesh.clone() }));
        while finished.try_recv().is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    });
    let calling = start_shard(ShardId(0), ShardOptions { cpu: Some(0), ..Default::default() }, move || async move {
        let mesh = zero.connect().await;
        let ctx = Rc::new(Ctx { _mesh: mesh.clone() });
        mesh.serve(&ctx);
        let started = Instant::now();
        for k in 0..calls {
            assert_eq!(mesh.call(&ctx, ShardId(1), async move |_| k).await, Ok(k));
        }
        started.elapsed()
    });
    let elapsed = calling.expect("a thread").join().expect("ends");
    finish.send(()).expect("shard 1 waits");
    serving.expect("a thread").join().expect("ends");
    elapsed
}

fn lanes(c: &mut Criterion) {
    c.bench_function("lane/one frame of 32 bytes", |b| {
        b.iter_custom(|frames| one_way(frames.max(10_000)) / scale(frames))
    });
    c.bench_function("mesh/call and answer", |b| b.iter_custom(round_trip));
}

/// Short runs measure the start of two threads: they are stretched, and the time scaled back.
fn scale(frames: u64) -> u32 {
    u32::try_from(10_000u64.div_ceil(frames.min(10_000))).expect("small")
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(3));
    targets = lanes
}
criterion_main!(benches);
