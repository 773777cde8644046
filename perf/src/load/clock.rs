//! The clock of a run, and when its records are due.
//!
//! The schedule is fixed before the first record goes: a sender that falls behind sends later than it should, and that
//! is part of the latency it measures, because latency counts from the intended time.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

const SECOND_NS: u64 = 1_000_000_000;

/// What is left to a sleep's inaccuracy is spun away, so that a record leaves within a microsecond of its time.
const SPIN_NS: u64 = 50_000;

/// Records that follow each other this closely are not spun for: the sender would take a core for itself.
const SPIN_PERIOD_NS_MIN: f64 = 4.0 * SPIN_NS as f64;

/// Time as a sender sees it.
pub trait Clock {
    /// Nanoseconds since the run began.
    fn now_ns(&self) -> u64;
    /// Returns at this time or later.
    fn sleep_until(&self, at_ns: u64);
}

/// CLOCK_MONOTONIC, from the beginning of the run on.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    began_ns: u64,
    began: SystemTime,
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * SECOND_NS + now.tv_nsec.cast_unsigned()
}

impl Monotonic {
    /// Begins now.
    pub fn begin() -> Self {
        Self { began_ns: monotonic_ns(), began: SystemTime::now() }
    }

    /// This time of the run by the clock on the wall.
    pub fn wall(&self, at_ns: u64) -> SystemTime {
        self.began + Duration::from_nanos(at_ns)
    }

    /// The same in ms since 1970.
    pub fn wall_ms(&self, at_ns: u64) -> u64 {
        let since = self.wall(at_ns).duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        monotonic_ns() - self.began_ns
    }

    fn sleep_until(&self, at_ns: u64) {
        let at = self.began_ns + at_ns;
        let [seconds, nanos] = [at / SECOND_NS, at % SECOND_NS].map(u64::cast_signed);
        let until = Timespec { tv_sec: seconds, tv_nsec: nanos };
        // A signal ends a sleep early; whoever asked looks at the clock again.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
    }
}

/// Lets the kernel wake this thread when it asks to be woken, and not up to 50 us later.
pub fn wake_in_time() {
    // Where the kernel refuses, the sender is later, and says so.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// When each record is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    begin_ns: u64,
    period_ns: f64,
}

impl Schedule {
    /// `rate` records a second from `begin_ns` on.
    pub fn new(begin_ns: u64, rate: f64) -> Self {
        assert!(rate > 0.0 && rate.is_finite(), "a rate is above zero");
        Self { begin_ns, period_ns: SECOND_NS as f64 / rate }
    }

    /// The time of record `number`.
    pub fn at_ns(&self, number: u64) -> u64 {
        self.begin_ns + (number as f64 * self.period_ns) as u64
    }

    /// Waits for the time of record `number`, if it is still to come; when that was to be.
    pub fn wait(&self, clock: &impl Clock, number: u64) -> u64 {
        let at_ns = self.at_ns(number);
        let spin_ns = if self.period_ns >= SPIN_PERIOD_NS_MIN { SPIN_NS } else { 0 };
        loop {
            let now_ns = clock.now_ns();
            if now_ns >= at_ns {
                return at_ns;
            }
            if at_ns - now_ns > spin_ns {
                clock.sleep_until(at_ns - spin_ns);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::cell::Cell;

    use super::*;

    /// A clock that stands still but for those who sleep and those who set it.
    #[derive(Default)]
    pub struct Still(pub Cell<u64>);

    impl Clock for Still {
        fn now_ns(&self) -> u64 {
            // As if looking at it took some time, so that a spin ends.
            self.0.set(self.0.get() + 10);
            self.0.get()
        }

        fn sleep_until(&self, at_ns: u64) {
            self.0.set(self.0.get().max(at_ns));
        }
    }

    #[test]
    fn the_schedule_does_not_drift_and_does_not_move() {
        let schedule = Schedule::new(5, 3.0);
        assert_eq!(schedule.at_ns(0), 5);
        assert_eq!(schedule.at_ns(3_000_000), 5 + 1_000_000 * SECOND_NS);
        let clock = Still::default();
        clock.0.set(2 * SECOND_NS);
        assert_eq!(schedule.wait(&clock, 1), 5 + SECOND_NS / 3, "what was due stays due at its time");
        assert!(clock.now_ns() < 2 * SECOND_NS + 100, "and is not waited for");
    }

    #[test]
    fn no_record_leaves_before_its_time() {
        for rate in [50.0, 3_000.0, 400_000.0] {
            let clock = Monotonic::begin();
            let schedule = Schedule::new(clock.now_ns(), rate);
            for number in 0..3 {
                let at_ns = schedule.wait(&clock, number);
                assert!(clock.now_ns() >= at_ns, "record {number} at {rate}/s");
            }
        }
    }
}
