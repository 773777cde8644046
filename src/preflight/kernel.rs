//! Checks of the kernel and of the limits that it holds this process to.

use std::fs;
use std::io;

use rustix::io_uring::io_uring_params;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Finding;

/// Oldest kernel with the io_uring operations that the runtime uses.
const KERNEL_MIN: (u32, u32) = (5, 8);

/// Locked memory that the rings of one core need.
const MEMLOCK_BYTES: u64 = 512 << 10;

/// Open files below which only a toy fits.
const FILES_MIN: u64 = 256;

/// Open files below which a busy broker runs out: connections, and a few for each partition.
const FILES_GOOD: u64 = 16_384;

/// Clock sources that are read without entering the kernel.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// Raises the soft limits of open files and locked memory to the hard ones. What is refused shows in the findings.
pub fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Memlock] {
        let Rlimit { current, maximum } = getrlimit(resource);
        if current != maximum {
            let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
        }
    }
}

/// All checks of this file.
pub fn findings(shards: u16) -> Vec<Finding> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    vec![
        kernel(&release),
        io_uring(probe(), &read("/proc/sys/kernel/io_uring_disabled"), &read("/proc/self/status")),
        memlock(getrlimit(Resource::Memlock).current, shards),
        files(getrlimit(Resource::Nofile).current),
        clock(read("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim()),
    ]
}

/// Sets up a ring of two entries and drops it.
fn probe() -> Result<(), io::Error> {
    let mut params = io_uring_params::default();
    // SAFETY: the parameters are all zero, so the kernel reads no descriptor or address out of them.
    let ring = unsafe { rustix::io_uring::io_uring_setup(2, &mut params) };
    ring.map(drop).map_err(Into::into)
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < KERNEL_MIN => {
            Finding::stop("kernel", format!("Linux {release} is too old; install 5.8 or newer and reboot."))
        }
        (Some(_), Some(_)) => Finding::ok("kernel", format!("Linux {release}.")),
        _ => {
            Finding::warn("kernel", format!("\"{release}\" is no version of Linux known here; 5.8 or newer is needed."))
        }
    }
}

fn io_uring(probe: Result<(), io::Error>, disabled: &str, status: &str) -> Finding {
    let check = "io_uring";
    let Err(error) = probe else {
        return Finding::ok(check, "Works.");
    };
    let filtered = status.lines().any(|line| line.starts_with("Seccomp:") && line.trim_end().ends_with('2'));
    match (error.raw_os_error().map(rustix::io::Errno::from_raw_os_error), disabled.trim()) {
        (Some(rustix::io::Errno::PERM), "1" | "2") => Finding::stop(
            check,
            "The kernel refuses io_uring; allow it with: sudo sysctl -w kernel.io_uring_disabled=0".to_string(),
        ),
        (Some(rustix::io::Errno::PERM | rustix::io::Errno::NOSYS), _) if filtered => Finding::stop(
            check,
            "A seccomp filter refuses io_uring; start the container with: --security-opt seccomp=unconfined, or with a \
             profile that allows io_uring_setup, io_uring_enter and io_uring_register",
        ),
        (Some(rustix::io::Errno::NOSYS), _) => {
            Finding::stop(check, "This kernel has no io_uring; boot one built with CONFIG_IO_URING=y")
        }
        (Some(rustix::io::Errno::NOMEM), _) => {
            Finding::stop(check, "No locked memory is left for io_uring; raise it with: ulimit -l unlimited")
        }
        _ => Finding::stop(
            check,
            format!(
                "io_uring_setup fails with \"{error}\"; look for the reason with: strace -e io_uring_setup oncilla check"
            ),
        ),
    }
}

fn memlock(soft: Option<u64>, shards: u16) -> Finding {
    let check = "locked memory";
    let Some(bytes) = soft else {
        return Finding::ok(check, "Unlimited.");
    };
    let needed = MEMLOCK_BYTES * u64::from(shards);
    let kib = bytes >> 10;
    let mend = "raise it with: ulimit -l unlimited (systemd: LimitMEMLOCK=infinity, Docker: --ulimit memlock=-1)";
    if bytes < MEMLOCK_BYTES {
        Finding::stop(check, format!("{kib} KiB may be locked, but io_uring needs 512 KiB for each core; {mend}"))
    } else if bytes < needed {
        let needed = needed >> 10;
        Finding::warn(check, format!("{kib} KiB may be locked, but {shards} cores want {needed} KiB; {mend}"))
    } else {
        Finding::ok(check, format!("{kib} KiB may be locked."))
    }
}

fn files(soft: Option<u64>) -> Finding {
    let check = "open files";
    let mend = "raise it with: ulimit -n 1048576 (systemd: LimitNOFILE=1048576, Docker: --ulimit nofile=1048576)";
    match soft {
        Some(count) if count < FILES_MIN => Finding::stop(check, format!("Only {count} files may be open; {mend}")),
        Some(count) if count < FILES_GOOD => {
            Finding::warn(check, format!("{count} files may be open, which many connections use up; {mend}"))
        }
        Some(count) => Finding::ok(check, format!("{count} files may be open.")),
        None => Finding::ok(check, "Unlimited."),
    }
}

fn clock(source: &str) -> Finding {
    let check = "clock source";
    if FAST_CLOCKS.contains(&source) {
        return Finding::ok(check, format!("{source}."));
    }
    Finding::warn(
        check,
        format!(
            "\"{source}\" makes every reading of the clock a system call; change it with: echo tsc | sudo tee \
             /sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn refused(errno: rustix::io::Errno) -> Result<(), io::Error> {
        Err(io::Error::from_raw_os_error(errno.raw_os_error()))
    }

    #[test]
    fn a_refused_io_uring_names_who_refuses_it() {
        use rustix::io::Errno;
        for (probe, disabled, status, mend) in [
            (refused(Errno::PERM), "2\n", "", "sysctl -w kernel.io_uring_disabled=0"),
            (refused(Errno::PERM), "0\n", "Name:\tx\nSeccomp:\t2\n", "--security-opt seccomp=unconfined"),
            (refused(Errno::NOSYS), "", "Seccomp:\t2\n", "--security-opt seccomp=unconfined"),
            (refused(Errno::NOSYS), "", "Seccomp:\t0\n", "CONFIG_IO_URING=y"),
            (refused(Errno::NOMEM), "0", "", "ulimit -l unlimited"),
            (refused(Errno::PERM), "0", "Seccomp:\t0\n", "strace -e io_uring_setup"),
        ] {
            let finding = io_uring(probe, disabled, status);
            assert_eq!(finding.verdict, Verdict::Stop);
            assert!(finding.sentence.contains(mend), "{}", finding.sentence);
        }
        assert_eq!(io_uring(Ok(()), "0", "").verdict, Verdict::Ok);
    }

    #[test]
    fn limits_stop_below_what_is_needed_and_warn_below_what_is_good() {
        assert_eq!(memlock(Some(64 << 10), 1).verdict, Verdict::Stop);
        assert_eq!(memlock(Some(1 << 20), 4).verdict, Verdict::Warn);
        assert_eq!(memlock(Some(8 << 20), 4).verdict, Verdict::Ok);
        assert_eq!(memlock(None, 100).verdict, Verdict::Ok);
        assert_eq!(files(Some(100)).verdict, Verdict::Stop);
        assert_eq!(files(Some(1024)).verdict, Verdict::Warn);
        assert_eq!(files(Some(1 << 20)).verdict, Verdict::Ok);
    }

    #[test]
    fn kernels_are_compared_by_number() {
        assert_eq!(kernel("5.4.0-91-generic").verdict, Verdict::Stop);
        assert_eq!(kernel("5.10.1").verdict, Verdict::Ok);
        assert_eq!(kernel("6.18.0-rc1").verdict, Verdict::Ok);
        assert_eq!(kernel("what").verdict, Verdict::Warn);
    }

    #[test]
    fn a_slow_clock_is_a_warning() {
        assert_eq!(clock("hpet").verdict, Verdict::Warn);
        assert_eq!(clock("tsc").verdict, Verdict::Ok);
    }

    #[test]
    fn the_limits_of_this_process_can_be_raised_and_read() {
        raise_limits();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        assert_eq!(findings(1).len(), 5);
    }
}
