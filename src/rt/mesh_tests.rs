use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use oncilla_shards::ids::ShardId;

use super::super::cores::{ShardOptions, start_shard};
use super::super::{Mesh, MeshError, sleep, spawn};
use super::{MeshSeat, mesh_seats_with};

struct Ctx {
    mesh: Rc<Mesh<Ctx>>,
    seen: RefCell<Vec<u32>>,
}

/// Runs `on_zero` on shard 0 beside a shard 1 that only serves, and returns what it returned.
fn with_peer<T, F>(lane_frames: usize, on_zero: impl FnOnce(Rc<Ctx>) -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let mut seats = mesh_seats_with(2, lane_frames).into_iter();
    let (zero, one) = (seats.next().expect("two seats"), seats.next().expect("two seats"));
    let peer = start_shard(ShardId(1), ShardOptions::default(), move || async move {
        let ctx = join(one).await;
        // Ends when shard 0 posts the stop mark.
        while ctx.seen.borrow().last() != Some(&STOP) {
            sleep(Duration::from_millis(1)).await;
        }
    });
    let main = start_shard(ShardId(0), ShardOptions::default(), move || async move {
        let ctx = join(zero).await;
        let result = on_zero(ctx.clone()).await;
        // A test may have stopped the peer itself.
        let _ = ctx.mesh.post(&ctx, ShardId(1), async |ctx| ctx.seen.borrow_mut().push(STOP));
        result
    });
    let result = main.expect("a thread").join().expect("shard 0 ends");
    peer.expect("a thread").join().expect("shard 1 ends");
    result
}

const STOP: u32 = u32::MAX;

async fn join(seat: MeshSeat<Ctx>) -> Rc<Ctx> {
    let mesh = seat.connect().await;
    let ctx = Rc::new(Ctx { mesh: mesh.clone(), seen: RefCell::default() });
    mesh.serve(&ctx);
    ctx
}

#[test]
fn jobs_of_one_sender_start_in_order_and_answers_find_their_callers() {
    let answers = with_peer(8, |ctx| async move {
        let (done, all) = super::oneshot();
        let (done, answers) = (Rc::new(RefCell::new(Some(done))), Rc::new(RefCell::new(vec![0; 100])));
        let left = Rc::new(std::cell::Cell::new(100));
        for k in 0..100u32 {
            let (ctx, done, answers, left) = (ctx.clone(), done.clone(), answers.clone(), left.clone());
            spawn(async move {
                let twice = ctx.mesh.call(&ctx, ShardId(1), move |ctx| {
                    ctx.seen.borrow_mut().push(k);
                    // Later callers get their answers first.
                    async move {
                        sleep(Duration::from_millis(u64::from(100 - k) / 10)).await;
                        k * 2
                    }
                });
                answers.borrow_mut()[k as usize] = twice.await.expect("shard 1 serves");
                left.set(left.get() - 1);
                if left.get() == 0 {
                    done.borrow_mut().take().expect("one last").send(());
                }
            });
        }
        all.await.expect("all answered");
        let order = ctx.mesh.call(&ctx, ShardId(1), async |ctx| ctx.seen.borrow().clone()).await;
        (answers.take(), order.expect("shard 1 serves"))
    });
    assert_eq!(answers.0, (0..100).map(|k| k * 2).collect::<Vec<u32>>());
    assert_eq!(answers.1, (0..100).collect::<Vec<u32>>());
}

#[test]
fn a_local_call_runs_directly() {
    let frames = with_peer(8, |ctx| async move {
        let seven = ctx.mesh.call(&ctx, ShardId(0), async |_| 7).await;
        assert_eq!(seven, Ok(7));
        ctx.mesh.frames_sent()
    });
    assert_eq!(frames, 0);
}

#[test]
fn two_shards_that_flood_each_other_over_tiny_lanes_do_not_deadlock() {
    let (tell, told) = mpsc::channel();
    let mut threads = Vec::new();
    for seat in mesh_seats_with::<Ctx>(2, 2) {
        let tell = tell.clone();
        threads.push(start_shard(seat.id(), ShardOptions::default(), move || async move {
            let other = ShardId(1 - seat.id().0);
            let ctx = join(seat).await;
            for k in 0..5_000 {
                let seen = async move |ctx: Rc<Ctx>| ctx.seen.borrow_mut().push(k);
                ctx.mesh.post(&ctx, other, seen).expect("the list has room for all of them");
            }
            while ctx.seen.borrow().len() < 5_000 {
                sleep(Duration::from_millis(1)).await;
            }
            tell.send((ctx.seen.take(), ctx.mesh.overflow_high())).expect("the test waits");
            // The other shard may still be receiving what this one sent.
            sleep(Duration::from_millis(200)).await;
        }));
    }
    for _ in 0..2 {
        let (seen, overflow) = told.recv_timeout(Duration::from_secs(30)).expect("no deadlock");
        assert_eq!(seen, (0..5_000).collect::<Vec<u32>>());
        assert!(overflow > 1000, "the lanes were never full: {overflow}");
    }
    threads.into_iter().for_each(|thread| thread.expect("a thread").join().expect("ends"));
}

#[test]
fn calls_to_a_shard_that_ends_fail_instead_of_hanging() {
    let (in_work, later) = with_peer(8, |ctx| async move {
        let hanging = ctx.mesh.call(&ctx, ShardId(1), async |ctx: Rc<Ctx>| {
            ctx.seen.borrow_mut().push(STOP);
            sleep(Duration::from_secs(3600)).await;
        });
        let in_work = hanging.await;
        (in_work, ctx.mesh.call(&ctx, ShardId(1), async |_| ()).await)
    });
    assert_eq!(in_work, Err(MeshError::Ended(ShardId(1))));
    assert_eq!(later, Err(MeshError::Ended(ShardId(1))));
}
